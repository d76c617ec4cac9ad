/// Remembers measured seconds of layers between runs, in one JSON file a user.
///
/// A probe writes what it measured before training, training what the layers then needed, and an
/// entry whose measurements disagreed is measured again before the next plan: one made while the
/// machine was busy does not stay. Entries of another processor, instruction set or libtorch stay
/// in the file, unseen.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "strata/measure/processor.h"
#include "strata/pipeline/layer_seconds.h"

namespace strata {

class ProbeCache {
 public:
  /// Empty name: nothing is read or written.
  explicit ProbeCache(std::string file,
                      const ProcessorIdentity& identity = ProcessorIdentity::of_this_machine());

  std::optional<LayerSeconds> find(const std::string& key) const;
  void insert(const std::string& key, const LayerSeconds& seconds);

  /// Whether the entry's forward or backward was measured with a spread above kDisturbedSpread.
  bool is_disturbed(const std::string& key) const;

  /// Puts a second measurement in the place of an entry, part by part, where it is the faster one:
  /// a busy machine only ever makes a layer slower.
  void measured_again(const std::string& key, const LayerSeconds& seconds);

  /// Puts what training measured in the place of an entry, if there is one, part by part, and
  /// leaves what it did not measure. A part stays, too, where training itself was disturbed: slower
  /// than the entry and with a spread above kDisturbedSpread and above the entry's.
  void correct(const std::string& key, const LayerSeconds& trained);

  void save() const;

  static constexpr double kDisturbedSpread = 0.3;

 private:
  std::string file_;
  std::string machine_;
  std::map<std::string, LayerSeconds> entries_;  // entries of this machine
  std::map<std::string, LayerSeconds> changed_;
};

/// Corrects the entries of a model's layers: `keys` and `trained` by layer. Layers with one key are
/// one entry: the mean of theirs.
void correct_cache(const std::string& file, const std::vector<std::string>& keys,
                   const std::vector<LayerSeconds>& trained);

// The files themselves. One that cannot be read or written only costs the time of measuring again.

/// $XDG_CACHE_HOME/strata/NAME or ~/.cache/strata/NAME; empty if neither is set.
std::string default_cache_file(const std::string& name);

/// An empty object if there is no such file or no object in it.
nlohmann::json read_cache_file(const std::string& file);

/// Makes the folder; readers see the old file or the new one.
void write_cache_file(const std::string& file, const nlohmann::json& json);

}  // namespace strata
