/// Defines how `strata serve` serves the checkpoints of one kind of task: the options that only
/// this kind has, and what answers clients.
///
/// A further kind is a class that derives from ServingKind and an entry in cli/server/kinds.
///
/// Threads  ServingKind, open() and wait_until_ready(): one; the rest of a ServedCheckpoint: any.
/// Errors   what the checkpoint's reader, its recipe and its model refuse.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/cli/server/checkpoint_follower.h"
#include "strata/http/routes.h"
#include "strata/kserve/model/model_repository.h"
#include "strata/openai/keys.h"

namespace CLI {
class App;
}

namespace strata {

/// What the options that all kinds share say.
struct ServeRequest {
  std::string checkpoint;              ///< or the folder that holds several
  std::string name;                    ///< the model's, for clients
  std::vector<std::string> overrides;  ///< of the recipe
  std::int64_t waiting = 256;          ///< requests that wait, at most
  std::shared_ptr<const Keys> keys;    ///< null: requests need none
};

/// A checkpoint that is being loaded, or served; its end cancels running requests.
class ServedCheckpoint : public CheckpointTaker {
 public:
  virtual std::shared_ptr<const ModelRepository> models() const = 0;
  virtual HttpRoutes routes() const = 0;
  virtual std::string checkpoint() const = 0;   ///< the folder that was loaded first
  virtual std::string description() const = 0;  ///< "gpt, context 32, 2 ranks"
  virtual std::string memory() const { return ""; }

  /// Returns when requests can be answered; throws what ended the load.
  virtual void wait_until_ready() {}
  /// Whether this process answers clients; another one may. After wait_until_ready().
  virtual bool answers() const { return true; }
  /// Whether it ends by itself within the time; throws what ended it.
  virtual bool ends_within(std::chrono::milliseconds time) = 0;

  virtual std::int64_t running() const = 0;  ///< requests that have started and not ended
  virtual std::string totals() const = 0;    ///< "12 tokens of prompts, 5 generated"
};

class ServingKind {
 public:
  virtual ~ServingKind() = default;
  virtual std::string task() const = 0;   ///< the kind of task (task/task_kind.h): "text"
  virtual std::string title() const = 0;  ///< of its options: "Models of text"
  /// `verb` has the options that all kinds share.
  virtual void add_options(CLI::App& verb) = 0;
  /// Does what an option of the kind requests in place of a server; false: none does.
  virtual bool instead_of_serving(const ServeRequest&) { return false; }
  /// Starts to load; returns before that has ended if requests may wait for it.
  virtual std::shared_ptr<ServedCheckpoint> open(const ServeRequest& request) = 0;
};

}  // namespace strata
