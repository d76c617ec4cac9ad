/// Remembers measured seconds of layers between runs, in one JSON file a user and machine.
///
/// A file that cannot be read or written only costs the time of measuring again.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace strata {

struct LayerSeconds {
  double forward = 0;
  double backward = 0;
  double update = 0;
};

class ProbeCache {
 public:
  explicit ProbeCache(std::string file);  ///< empty name: nothing is read or written

  std::optional<LayerSeconds> find(const std::string& key) const;
  void insert(const std::string& key, const LayerSeconds& seconds);
  void save() const;

 private:
  std::string file_;
  std::string machine_;  // entries of other machines stay in the file, unseen
  std::map<std::string, LayerSeconds> entries_;
  bool changed_ = false;
};

}  // namespace strata
