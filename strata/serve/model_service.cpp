#include "strata/serve/model_service.h"

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "strata/comm/ranks.h"
#include "strata/disk/temporary_disk.h"
#include "strata/serve/decoder.h"
#include "strata/serve/draft_model.h"
#include "strata/serve/pass_loop.h"
#include "strata/serve/request_loop.h"
#include "strata/transport/rendezvous.h"

namespace strata {

struct ModelService::Parts {
  Parts(ServedModel model, ServiceOptions chosen)
      : served(std::move(model)),
        options(std::move(chosen)),
        network(network_of(served)),
        draft_network(network_of_draft(options)),
        request(serving_request(served, network, options)),
        plan(plan_serving(request)),
        disk(served.memory.disk.path, "serve", rendezvous_from_environment().process),
        loop({.limits = {.pages = request.room.pages,
                         .host_pages = request.room.host_pages,
                         .disk_pages = request.room.disk_pages,
                         .page_tokens = request.room.page_tokens,
                         .context = request.context,
                         .sequences = options.sequences,
                         .pass_tokens = request.pass_tokens,
                         .pass_logits = request.pass_logits,
                         .waiting = options.waiting,
                         .longest_wait = options.longest_wait},
              .vocabulary = served.model.vocab,
              .guesses = options.guesses,
              .drafts = options.draft.has_value(),
              .weights = weights_name(served.checkpoint, served.weights),
              .warn = options.warn}) {}

  void run();
  void run_rank(Group& world);
  std::unique_ptr<DraftModel> draft_model(const Group& world) const;
  void set(bool& flag);
  void report_end(std::exception_ptr thrown);

  ServedModel served;
  ServiceOptions options;
  Sequential network;
  std::optional<Sequential> draft_network;
  ServingRequest request;
  ServingPlan plan;
  TemporaryDisk disk;
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
  RanksOptions ranks_options = served.ranks;
  ranks_options.warn = options.warn;
  // Page numbers of the deciding rank must exist in all processes.
  ranks_options.fingerprint +=
      "\ncache: " + std::to_string(request.room.pages) + ", " +
      std::to_string(request.room.host_pages) + ", " + std::to_string(request.room.disk_pages) +
      " pages\nweights: " + weights_name(served.checkpoint, served.weights);
  if (options.draft) ranks_options.fingerprint += "\ndraft: " + options.draft->ranks.fingerprint;
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
  Decoder decoder(network, plan.steps, request.room, world, weight_tiers(served, disk.path()));
  load_checkpoint(decoder, served.model, served.checkpoint);
  const std::unique_ptr<DraftModel> draft = decoder.decides() ? draft_model(world) : nullptr;
  if (decoder.decides()) set(decides);
  world.barrier();
  set(ready);
  const auto load = [&](Decoder& filled, const std::string& checkpoint) {
    load_checkpoint(filled, served.model, checkpoint);
  };
  GuessTokens guess;
  if (draft) guess = [&](Batch& batch, const ChooseGuess& choose) { draft->guess(batch, choose); };
  run_passes(decoder, world, loop, load, guess);
}

// Null if none guesses.
std::unique_ptr<DraftModel> ModelService::Parts::draft_model(const Group& world) const {
  if (!options.draft) return nullptr;
  auto draft = std::make_unique<DraftModel>(
      *draft_network, request.room, world,
      weight_tiers(*options.draft, disk.path().empty() ? "" : disk.path() + "/draft"));
  load_checkpoint(draft->decoder(), options.draft->model, options.draft->checkpoint);
  return draft;
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

bool ModelService::ends_within(std::chrono::milliseconds time) {
  std::unique_lock lock(parts_->mutex);
  parts_->changed.wait_for(lock, time, [&] { return parts_->ended; });
  if (parts_->error) std::rethrow_exception(parts_->error);
  return parts_->ended;
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

std::int64_t ModelService::context() const { return parts_->request.context; }

// Reads the files before the ranks do: a rank that finds them damaged has lost its old weights.
bool ModelService::load(const std::string& checkpoint) {
  check_checkpoint(checkpoint, parts_->served.model);
  return parts_->loop.load(checkpoint, weights_name(checkpoint, parts_->served.weights));
}

void ModelService::refuse_loads() { parts_->loop.refuse_loads(); }

std::string ModelService::weights() const { return parts_->loop.weights(); }
const ServingPlan& ModelService::plan() const { return parts_->plan; }
std::int64_t ModelService::most_waiting() const { return parts_->options.waiting; }
std::int64_t ModelService::vocabulary() const { return parts_->served.model.vocab; }

}  // namespace strata
