// A rank writes its file at every checkpoint, even without rows, because a file of an older run may
// have the same name.
#include "strata/embed/rows_ahead.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/random_access_file.h"
#include "strata/rowserver/codec/byte_codec.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMagic = 0x0A444841574F5289;  // 89 "ROWAHD" 0A
constexpr std::uint32_t kFormat = 1;
constexpr std::uint64_t kLargest = std::uint64_t{1} << 36;
const FileUse kUse{
    .operation = "embed.rows_ahead",
    .fix =
        "restore the file from a copy, or set embedding.reread=true: the first steps "
        "then read rows of the checkpoint, and their losses are others",
    .follow_links = true};

std::string file_name(std::int64_t version, int rank) {
  char name[64];
  std::snprintf(name, sizeof name, "ahead-%020lld-rank-%d.rows", static_cast<long long>(version),
                rank);
  return name;
}

struct AheadFile {
  std::int64_t version;
  int rank;
};

// Files of this rank and, for rank 0, of ranks that do not exist any more; ascending by version.
std::vector<AheadFile> files_of(const RowsAheadOptions& options) {
  std::vector<AheadFile> files;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(options.to, none)) {
    long long version = -1;
    int rank = -1;
    const std::string name = entry.path().filename();
    if (std::sscanf(name.c_str(), "ahead-%20lld-rank-%d.rows", &version, &rank) == 2 &&
        name == file_name(version, rank) &&
        (rank == options.rank || (options.rank == 0 && rank >= options.ranks)))
      files.push_back({version, rank});
  }
  std::ranges::sort(files, {}, &AheadFile::version);
  return files;
}

void remove_file(const RowsAheadOptions& options, const AheadFile& file) {
  std::error_code none;
  fs::remove(options.to + "/" + file_name(file.version, file.rank), none);
}

std::vector<std::byte> encode(const RowsAheadOptions& options, std::int64_t version,
                              const std::vector<StepRows>& all) {
  ByteWriter to;
  to.fixed64(kMagic);
  to.fixed32(kFormat);
  to.fixed32(static_cast<std::uint32_t>(options.rank));
  to.fixed32(static_cast<std::uint32_t>(options.ranks));
  to.fixed32(static_cast<std::uint32_t>(all.size()));
  to.fixed64(options.fingerprint);
  to.fixed64(static_cast<std::uint64_t>(version));
  for (const StepRows& step : all) {
    to.varint(static_cast<std::uint64_t>(step.step));
    to.varint(static_cast<std::uint64_t>(step.rows.feature));
    to.varint(static_cast<std::uint64_t>(step.rows.version));
    to.ids(step.rows.ids);
    to.bytes(std::as_bytes(std::span(step.rows.values)));
  }
  to.seal();
  return to.take();
}

// Appends to `all`; returns the number of ranks.
int decode(const RowsAheadOptions& options, const std::string& path, std::int64_t version, int rank,
           std::vector<StepRows>& all) {
  const std::string bytes = read_file(path, kUse, kLargest);
  try {
    ByteReader from = ByteReader::sealed(std::as_bytes(std::span(bytes)), "file");
    if (from.fixed64() != kMagic) from.refuse("it holds no rows read ahead");
    if (from.fixed32() != kFormat) from.refuse("another version of the program wrote it");
    if (static_cast<int>(from.fixed32()) != rank) from.refuse("it was renamed");
    const auto ranks = static_cast<int>(from.fixed32());
    const std::uint32_t count = from.fixed32();
    if (from.fixed64() != options.fingerprint) from.refuse("it belongs to another recipe");
    if (static_cast<std::int64_t>(from.fixed64()) != version) from.refuse("it was renamed");
    for (std::uint32_t i = 0; i < count; ++i) {
      StepRows step{.step = from.number(), .rows = {}};
      const std::int64_t table = from.number();
      if (table >= static_cast<std::int64_t>(options.tables.size()))
        from.refuse("it names a table that is not there");
      step.rows.feature = static_cast<int>(table);
      step.rows.version = from.number();
      step.rows.ids = from.ids();
      const auto width =
          static_cast<std::size_t>(options.tables[static_cast<std::size_t>(table)].width);
      step.rows.values.resize(step.rows.ids.size() * width);
      const std::span<const std::byte> values = from.bytes(step.rows.values.size() * sizeof(float));
      if (!values.empty()) std::memcpy(step.rows.values.data(), values.data(), values.size());
      all.push_back(std::move(step));
    }
    from.require_end();
    return ranks;
  } catch (const SystemError& error) {
    if (error.text().operation != "embed.decode") throw;
    kUse.refuse(path, error.text().what, "rows that were read ahead of a checkpoint",
                error.text().where);
  }
}

}  // namespace

void RowsAhead::save(std::int64_t version, const std::vector<StepRows>& rows) const {
  if (options_.to.empty()) return;
  make_folders_durably(options_.to);
  // Files of later versions belong to a run that ended before its checkpoint was complete. They
  // must not be counted, or be found as files of this run.
  for (const AheadFile& file : files_of(options_))
    if (file.version > version || (file.version == version && file.rank != options_.rank))
      remove_file(options_, file);
  const std::string path = options_.to + "/" + file_name(version, options_.rank);
  DurableFile file(path + ".part");
  file.write(encode(options_, version, rows));
  file.close();
  rename_durably(path + ".part", path);
  if (options_.keep == 0) return;
  // Keeps one more, because the checkpoint of this version is not written yet.
  const std::vector<AheadFile> files = files_of(options_);
  std::int64_t kept = 0, oldest = version;
  for (auto file = files.rbegin(); file != files.rend() && kept <= options_.keep; ++file) {
    if (file->rank != options_.rank) continue;
    oldest = file->version;
    ++kept;
  }
  for (const AheadFile& file : files)
    if (file.version < oldest) remove_file(options_, file);
}

std::vector<StepRows> RowsAhead::load(std::int64_t version) const {
  std::vector<StepRows> all;
  if (options_.from.empty()) return all;
  const auto path_of = [&](int rank) { return options_.from + "/" + file_name(version, rank); };
  const int ranks = decode(options_, path_of(0), version, 0, all);
  for (int rank = 1; rank < ranks; ++rank) decode(options_, path_of(rank), version, rank, all);
  return all;
}

}  // namespace strata
