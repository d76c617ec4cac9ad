/// Caches measured seconds of layers between runs, in one JSON file per user.
///
/// A probe writes what it measured before training; training then writes the seconds of its own
/// layers. An entry whose measurements disagreed is measured again before the next plan, so that
/// measurements on a busy machine do not persist. Entries of another processor, instruction set or
/// libtorch stay in the file, unused.
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
  /// Empty name: no file is read or written.
  explicit ProbeCache(std::string file,
                      const ProcessorIdentity& identity = ProcessorIdentity::of_this_machine());

  std::optional<LayerSeconds> find(const std::string& key) const;
  void insert(const std::string& key, const LayerSeconds& seconds);

  /// Whether the entry's forward or backward was measured with a spread above kDisturbedSpread.
  bool is_disturbed(const std::string& key) const;

  /// Replaces an entry, part by part, where the second measurement is faster: a busy machine only
  /// makes layers slower.
  void measured_again(const std::string& key, const LayerSeconds& seconds);

  /// Replaces an existing entry, part by part, by what training measured; keeps parts that it did
  /// not measure. Also keeps a part if training was disturbed: slower than the entry, with a spread
  /// above kDisturbedSpread and above the entry's.
  void correct(const std::string& key, const LayerSeconds& trained);

  void save() const;

  static constexpr double kDisturbedSpread = 0.3;

 private:
  std::string file_;
  std::string machine_;
  std::map<std::string, LayerSeconds> entries_;  // entries of this machine
  std::map<std::string, LayerSeconds> changed_;
};

/// Corrects the entries of a model's layers; `keys` and `trained` are indexed by layer. Layers with
/// the same key share one entry, the mean of theirs.
void correct_cache(const std::string& file, const std::vector<std::string>& keys,
                   const std::vector<LayerSeconds>& trained);

// Files of a cache. If one cannot be read or written, its measurements are repeated.

/// $XDG_CACHE_HOME/strata/NAME or ~/.cache/strata/NAME; empty if neither is set.
std::string default_cache_file(const std::string& name);

/// An empty object if there is no such file or no object in it.
nlohmann::json read_cache_file(const std::string& file);

/// Makes the folder; readers see the old file or the new one.
void write_cache_file(const std::string& file, const nlohmann::json& json);

}  // namespace strata
