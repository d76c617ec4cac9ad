#include "strata/checkpoint/manifest.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "strata/base/checksum.h"
#include "strata/base/json_document.h"
#include "strata/base/json_text.h"
#include "strata/base/manifest_checksum.h"
#include "strata/checkpoint/folder.h"
#include "strata/checkpoint/model_description.h"

namespace strata {
namespace {

using nlohmann::ordered_json;

const FileUse kManifestUse{.operation = "checkpoint.open", .fix = "resume from another checkpoint"};

ManifestFile read_file_entry(const JsonPart& entry) {
  ManifestFile file{.name = entry.member("name").text(), .digest = {}};
  if (!is_plain_name(file.name) || file.name == kManifestName)
    entry.member("name").refuse("a file in the checkpoint's folder", file.name);
  file.digest.bytes = entry.member("bytes").number();
  const std::vector<JsonPart> sums = entry.member("checksums").elements();
  // Divides first: a sum with the stated bytes could overflow.
  const std::int64_t chunks =
      file.digest.bytes / kChunkBytes + (file.digest.bytes % kChunkBytes > 0 ? 1 : 0);
  if (chunks != static_cast<std::int64_t>(sums.size()))
    entry.member("checksums").refuse("one for every 4 MiB", std::to_string(sums.size()));
  for (const JsonPart& sum : sums) file.digest.checksums.push_back(read_checksum(sum));
  return file;
}

Manifest read_fields(const JsonPart& fields) {
  Manifest manifest{
      .step = fields.member("step").number(),
      .samples_seen = fields.member("samples_seen").number(),
      .threads_per_rank = static_cast<int>(fields.member("threads_per_rank").number(1, 1 << 20)),
      .strata_version = fields.member("strata_version").text(),
      .recipe = fields.member("recipe").text(),
      .tokenizer = fields.text("tokenizer", "")};
  if (const JsonPart model = fields.member("model"); !model.is_null())
    manifest.model = read_model(model);
  if (const JsonPart network = fields.member("network"); !network.is_null())
    manifest.network = network.value().dump();
  std::set<std::string> names;
  for (const JsonPart& entry : fields.member("files").elements()) {
    manifest.files.push_back(read_file_entry(entry));
    if (!names.insert(manifest.files.back().name).second)
      entry.member("name").refuse("every file once", manifest.files.back().name);
  }
  return manifest;
}

}  // namespace

std::string write_manifest(const Manifest& manifest) {
  ordered_json fields = {
      {"format_version", kCheckpointFormat},       {"step", manifest.step},
      {"samples_seen", manifest.samples_seen},     {"threads_per_rank", manifest.threads_per_rank},
      {"strata_version", manifest.strata_version}, {"recipe", manifest.recipe}};
  if (manifest.model) fields["model"] = describe_model(*manifest.model);
  if (!manifest.network.empty()) fields["network"] = ordered_json::parse(manifest.network);
  if (!manifest.tokenizer.empty()) fields["tokenizer"] = manifest.tokenizer;
  fields["files"] = ordered_json::array();
  for (const auto& [name, digest] : manifest.files) {
    std::vector<std::string> checksums;
    for (const std::uint64_t sum : digest.checksums) checksums.push_back(checksum_text(sum));
    fields["files"].push_back(
        {{"name", name}, {"bytes", digest.bytes}, {"checksums", std::move(checksums)}});
  }
  return with_manifest_checksum(json_text(fields, 2));
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const JsonDocument document = JsonDocument::parse(text, path, kManifestUse);
  const JsonPart fields = document.root();
  const std::int64_t version = fields.member("format_version").number();
  if (version != kCheckpointFormat) {
    const FileUse other{.operation = kManifestUse.operation,
                        .fix = "use the version of strata that wrote it"};
    other.refuse(path, "the checkpoint has another format version",
                 std::to_string(kCheckpointFormat), std::to_string(version));
  }
  require_manifest_checksum(text, path, kManifestUse);
  return read_fields(fields);
}

}  // namespace strata
