#include "strata/serve/service_options.h"

#include <algorithm>
#include <string>

#include "strata/base/error_source.h"
#include "strata/base/units.h"
#include "strata/serve/decoder.h"
#include "strata/serve/draft_model.h"

namespace strata {
namespace {

constexpr ErrorSource kServiceErrors{"serve.model"};

constexpr std::int64_t kServedPageTokens = 64;
constexpr std::int64_t kDefaultCacheBytes = std::int64_t{1} << 30;
constexpr std::int64_t kMostPages = std::int64_t{1} << 24;  // the scheduler has a record of each
constexpr std::int64_t kPassLogits = 256;  // of scored prompts: a vocabulary's worth of floats each

// Positions of the model, and of its draft model.
std::int64_t positions_of(const ServedModel& served, const ServiceOptions& options) {
  return options.draft ? std::min(served.model.context, options.draft->model.context)
                       : served.model.context;
}

void check_context(const ServedModel& served, const ServiceOptions& options) {
  const std::int64_t positions = positions_of(served, options);
  if (options.context <= positions) return;
  throw kServiceErrors.user(
      "--context",
      std::string(positions < served.model.context ? "the draft model" : "the model") +
          " has fewer positions",
      "at most " + std::to_string(positions), std::to_string(options.context),
      "pass a smaller --context");
}

std::int64_t cache_of(const ServedModel& served, const ServiceOptions& options) {
  const std::int64_t device = served.memory.device.count;  // 0: no limit
  return options.cache_bytes.value_or(device > 0 ? std::min(kDefaultCacheBytes, device / 2)
                                                 : kDefaultCacheBytes);
}

std::int64_t bytes_of_a_page(const Sequential& model, const Mesh& mesh) {
  return page_bytes(model, decoder_steps(model, mesh), kServedPageTokens);
}

// Pages beyond those that all sequences at their longest need still keep beginnings for reuse.
// `draft`: null if none guesses.
PageRoom room_of(const Sequential& model, const ServedModel& served, const ServiceOptions& options,
                 const Sequential* draft) {
  check_context(served, options);
  const std::int64_t bytes =
      bytes_of_a_page(model, served.ranks.mesh) + (draft ? bytes_of_a_page(*draft, Mesh{}) : 0);
  const std::int64_t pages =
      std::max<std::int64_t>(1, (options.context + kServedPageTokens - 1) / kServedPageTokens);
  const std::int64_t cache = cache_of(served, options);
  if (cache < pages * bytes)
    throw kServiceErrors.user(
        "--cache",
        options.context > 0 ? "the cache has no room for a sequence of --context tokens"
                            : "the cache has no room for a page",
        "at least " + format_bytes(pages * bytes) + " on a rank", format_bytes(cache),
        options.context > 0 ? "pass a larger --cache, or a smaller --context"
                            : "pass a larger --cache");
  const auto lower_pages = [&](const char* option, std::int64_t room) {
    if (room == 0 || room >= bytes) return room / bytes;
    throw kServiceErrors.user(option, "there is no room for a page",
                              "at least " + format_bytes(bytes) + " on a rank", format_bytes(room),
                              std::string("pass a larger ") + option);
  };
  if (options.disk_cache_bytes > 0 && served.memory.disk.path.empty())
    throw kServiceErrors.user("--cache-disk", "no disk is named", "memory.disk.path", "none",
                              "pass --set memory.disk.path=FOLDER, or leave out --cache-disk");
  const PageRoom room{.page_tokens = kServedPageTokens,
                      .pages = cache / bytes,
                      .host_pages = lower_pages("--cache-host", options.host_cache_bytes),
                      .disk_pages = lower_pages("--cache-disk", options.disk_cache_bytes)};
  const std::int64_t all = room.pages + room.host_pages + room.disk_pages;
  if (all > kMostPages)
    throw kServiceErrors.user("--cache, --cache-host, --cache-disk", "there are too many pages",
                              "at most " + std::to_string(kMostPages), std::to_string(all),
                              "pass smaller caches");
  return room;
}

}  // namespace

std::optional<Sequential> network_of_draft(const ServiceOptions& options) {
  if (!options.draft) return std::nullopt;
  return network_of(*options.draft);
}

ServingRequest serving_request(const ServedModel& served, const Sequential& model,
                               const ServiceOptions& options) {
  const std::optional<Sequential> draft = network_of_draft(options);
  const PageRoom room = room_of(model, served, options, draft ? &*draft : nullptr);
  ServingRequest request{
      .model = model,
      .mesh = served.ranks.mesh,
      .room = room,
      .context = options.context > 0
                     ? options.context
                     : std::min(positions_of(served, options), room.pages * room.page_tokens),
      .pass_tokens = options.pass_tokens,
      .pass_logits = std::max(options.sequences, std::min(options.pass_tokens, kPassLogits)),
      .memory = served.memory,
      .smaller = {.device = draft ? "pass a smaller --cache, --pass-tokens or --draft, or "
                                    "--draft-weights int4"
                                  : "pass a smaller --cache or --pass-tokens",
                  .host = room.host_pages > 0 ? "pass a smaller --cache-host" : "",
                  .disk = room.disk_pages > 0 ? "pass a smaller --cache-disk" : ""}};
  if (draft) {
    request.draft_bytes = draft_bytes(*draft, request, options.sequences);
    request.draft_page_bytes = bytes_of_a_page(*draft, Mesh{});
  }
  return request;
}

}  // namespace strata
