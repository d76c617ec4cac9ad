#include "strata/serve/model_service.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/base/error_source.h"
#include "strata/checkpoint/loader.h"
#include "strata/comm/ranks.h"
#include "strata/models/model.h"
#include "strata/serve/decoder.h"
#include "strata/serve/pass_loop.h"
#include "strata/serve/request_loop.h"

namespace strata {
namespace {

constexpr ErrorSource kServiceErrors{"serve.model"};

std::int64_t context_of(const ServedModel& served, const ServiceOptions& options) {
  if (options.context <= served.model.context)
    return options.context > 0 ? options.context : served.model.context;
  throw kServiceErrors.user("--context", "the model has fewer positions",
                            "at most " + std::to_string(served.model.context),
                            std::to_string(options.context), "pass a smaller --context");
}

// Pages beyond those that all sequences at their longest need still keep beginnings for reuse.
PageRoom room_of(const Sequential& model, const ServedModel& served,
                 const ServiceOptions& options) {
  const std::int64_t bytes = page_bytes(model, served.mesh, options.page_tokens);
  return {.page_tokens = options.page_tokens,
          .pages = std::max<std::int64_t>(1, options.cache_bytes / bytes)};
}

}  // namespace

struct ModelService::Parts {
  Parts(ServedModel model, ServiceOptions chosen)
      : served(std::move(model)),
        options(std::move(chosen)),
        context(context_of(served, options)),
        network(make_model(served.model, DecoderOutput::kLogits,
                           {.ranks = served.mesh[Axis::kTensor]})),
        room(room_of(network, served, options)),
        loop({.limits = {.pages = room.pages,
                         .page_tokens = room.page_tokens,
                         .context = context,
                         .sequences = options.sequences,
                         .pass_tokens = std::max(options.pass_tokens, options.sequences),
                         .pass_logits = std::max<std::int64_t>(256, options.sequences),
                         .waiting = options.waiting,
                         .reuse_pages = options.reuse_pages},
              .vocabulary = served.model.vocab,
              .guesses = options.guesses}) {}

  void run();
  void run_rank(Group& world);
  void set(bool& flag);
  void report_end(std::exception_ptr thrown);

  ServedModel served;
  ServiceOptions options;
  std::int64_t context;
  Sequential network;
  PageRoom room;
  RequestLoop loop;

  std::mutex mutex;  // of all that follows but the thread
  std::condition_variable changed;
  bool ready = false;
  bool decides = false;
  bool ended = false;
  std::exception_ptr error;
  std::thread ranks;
};

void ModelService::Parts::run() {
  RanksOptions ranks_options{.ranks = served.mesh.size(),
                             .threads_per_rank = served.threads_per_rank,
                             .device_bytes = served.device_bytes,
                             .device = served.device,
                             .mesh = served.mesh,
                             .fingerprint = served.fingerprint,
                             .warn = options.warn};
  try {
    run_ranks(std::move(ranks_options), [this](Group& world, MemoryAccount&) { run_rank(world); });
    loop.end();
    report_end(nullptr);
  } catch (const std::exception& thrown) {
    loop.end(thrown.what());
    report_end(std::current_exception());
  }
}

void ModelService::Parts::run_rank(Group& world) {
  Decoder decoder(network, served.mesh, room, world);
  std::vector<NamedState> weights = decoder.weights();
  load_weights(served.checkpoint, served.model, weights);
  weights.clear();  // releases their pins
  if (decoder.decides()) set(decides);
  world.barrier();
  set(ready);
  run_passes(decoder, world, loop);
}

void ModelService::Parts::set(bool& flag) {
  const std::scoped_lock lock(mutex);
  flag = true;
  changed.notify_all();
}

void ModelService::Parts::report_end(std::exception_ptr thrown) {
  const std::scoped_lock lock(mutex);
  ended = true;
  error = std::move(thrown);
  changed.notify_all();
}

ModelService::ModelService(ServedModel served, ServiceOptions options)
    : parts_(std::make_unique<Parts>(std::move(served), std::move(options))) {
  parts_->ranks = std::thread([this] { parts_->run(); });
}

ModelService::~ModelService() {
  parts_->loop.stop();
  parts_->ranks.join();
}

void ModelService::wait_until_ready() {
  std::unique_lock lock(parts_->mutex);
  parts_->changed.wait(lock, [&] { return parts_->ready || parts_->ended; });
  if (parts_->error) std::rethrow_exception(parts_->error);
}

void ModelService::wait() {
  std::unique_lock lock(parts_->mutex);
  parts_->changed.wait(lock, [&] { return parts_->ended; });
  if (parts_->error) std::rethrow_exception(parts_->error);
}

bool ModelService::decides() const {
  const std::scoped_lock lock(parts_->mutex);
  return parts_->decides;
}

Admission ModelService::submit(SequenceRequest request, SequenceListener listener) {
  return parts_->loop.submit(std::move(request), std::move(listener));
}

void ModelService::cancel(std::uint64_t id) { parts_->loop.cancel(id); }

ServiceStatus ModelService::status() const {
  ServiceStatus status = parts_->loop.status();
  const std::scoped_lock lock(parts_->mutex);
  status.ready = status.ready && parts_->ready;
  return status;
}

std::int64_t ModelService::context() const { return parts_->context; }
std::int64_t ModelService::vocabulary() const { return parts_->served.model.vocab; }

}  // namespace strata
