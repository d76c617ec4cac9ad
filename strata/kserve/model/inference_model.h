/// States what a model offers to KServe's clients: named tensors in, named tensors out, once or as
/// a sequence of answers.
///
/// A further kind of model is a class that derives from InferenceModel and an entry in the list of
/// ModelRepository; the routes of HTTP, the calls of gRPC and the metrics see it through them.
///
/// Threads  any may call a model. A sink gets one call at a time.
/// Errors   ApiError; its status also decides the status of gRPC.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "strata/kserve/model/tensor.h"
#include "strata/openai/keys.h"

namespace strata {

class ApiError;

struct TensorMetadata {
  std::string name;
  Datatype datatype = Datatype::kBytes;
  TensorShape shape;      ///< -1: a dimension of any size
  bool optional = false;  ///< a request may omit the input; an output comes only if requested
};

struct ModelDescription {
  std::string name;
  std::string platform;  ///< the kind of model: "strata_text"
  std::vector<TensorMetadata> inputs, outputs;
  bool decoupled = false;  ///< a request may have several answers
};

/// Counts of requests that have ended, and of their time.
struct RequestTime {
  std::uint64_t count = 0;
  std::uint64_t nanoseconds = 0;
};

struct ModelStatistics {
  RequestTime success;
  std::map<std::string, RequestTime> failures;  ///< by Triton's reasons: "REJECTED", "CANCELED" ...
  std::uint64_t executions = 0;                 ///< forward passes
  std::int64_t pending = 0;                     ///< requests that wait
  std::uint64_t last_request = 0;               ///< milliseconds since 1970; 0: none

  RequestTime failed() const;  ///< the sum of `failures`
};

struct InferenceRequest {
  std::string model, version = {}, id = {};
  nlohmann::json parameters = nlohmann::json::object();  ///< by name
  std::vector<Tensor> inputs = {};
  std::vector<std::string> outputs = {};  ///< names; none: those that are not optional
  std::shared_ptr<ApiKey> key = {};       ///< null: the server needs no keys
  bool may_stream = false;                ///< the client reads several answers
};

/// What answers state about their request.
struct InferenceHead {
  std::string model, id = {};
  bool streamed = false;  ///< the client reads several answers
};
InferenceHead head_of(const InferenceRequest& request);

struct InferenceAnswer {
  std::vector<Tensor> outputs;
  bool last = true;
};

class InferenceSink {
 public:
  virtual ~InferenceSink() = default;
  /// False: the client has gone, and the model may end the request.
  virtual bool on_answer(InferenceAnswer answer) = 0;
  virtual void on_error(const ApiError& error) = 0;  ///< last call
};

class InferenceModel {
 public:
  virtual ~InferenceModel() = default;
  virtual const ModelDescription& description() const = 0;
  virtual bool ready() const = 0;
  virtual ModelStatistics statistics() const = 0;

  /// Starts a request that fits the description, and returns soon; the sink may be called before it
  /// returns. Throws an ApiError if the request cannot start; then the sink gets no call. The
  /// result ends the request early, at any time and on any thread; the sink then gets no further
  /// call.
  virtual std::function<void()> infer(InferenceRequest request,
                                      std::shared_ptr<InferenceSink> sink) = 0;
};

/// Refuses a request whose tensors the description does not have, and one that lacks some. The
/// tensors have passed check_bytes().
void check_request(const ModelDescription& description, const InferenceRequest& request);

}  // namespace strata
