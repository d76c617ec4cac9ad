/// Estimates the seconds of a layer from measurements that other work on the machine may have
/// lengthened.
///
/// Noise only adds time, so the lower quartile is the estimate: up to half of the measurements may
/// be disturbed without changing it, and a single fast measurement does not determine it as a
/// minimum would. The spread tells how much the measurements disagree.
///
/// Units  seconds of one full micro-batch; an update is per step.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

namespace strata {

struct Timing {
  double seconds = 0;        ///< the lower quartile
  double spread = 0;         ///< (upper quartile - lower quartile) / lower quartile
  std::int64_t samples = 0;  ///< 0: not measured
};

Timing timing_of(std::vector<double> seconds);

/// kInputs and kWeights: the halves of a divided backward.
enum class LayerPart : std::uint8_t { kForward, kBackward, kUpdate, kInputs, kWeights };
inline constexpr int kNumLayerParts = 5;

struct LayerSeconds {
  std::array<Timing, kNumLayerParts> parts{};

  Timing& operator[](LayerPart part) { return parts[static_cast<int>(part)]; }
  const Timing& operator[](LayerPart part) const { return parts[static_cast<int>(part)]; }
  double forward() const { return (*this)[LayerPart::kForward].seconds; }
  /// Of both halves, if the backward was divided.
  double backward() const {
    return (*this)[LayerPart::kWeights].samples > 0
               ? (*this)[LayerPart::kInputs].seconds + weights()
               : (*this)[LayerPart::kBackward].seconds;
  }
  /// Of a divided backward's second half; 0: not measured.
  double weights() const { return (*this)[LayerPart::kWeights].seconds; }
  double update() const { return (*this)[LayerPart::kUpdate].seconds; }
};

/// Ranks that ran the same layer: the mean of their seconds, the largest of their spreads.
LayerSeconds mean_of(const std::vector<LayerSeconds>& ranks);

/// Keeps the last measurements of a rank's layers while it trains: their own spans, without waits
/// for weights or messages.
///
/// Threads  belongs to one rank's thread.
class LayerTimes {
 public:
  void add(int layer, LayerPart part, double seconds);

  /// Parts of a layer's update are summed until end_step().
  void add_update(int layer, double seconds) { update_[layer] += seconds; }
  void end_step();

  LayerSeconds of(int layer) const;

 private:
  static constexpr std::size_t kKept = 256;  // measurements kept per layer and part
  struct Samples {
    std::vector<double> seconds;
    std::size_t next = 0;
  };
  std::map<std::pair<int, LayerPart>, Samples> samples_;
  std::map<int, double> update_;
};

}  // namespace strata
