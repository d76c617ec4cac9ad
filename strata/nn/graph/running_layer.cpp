#include "strata/nn/graph/running_layer.h"

#include <utility>

namespace strata {
namespace {

thread_local const ForwardContext* running = nullptr;

}  // namespace

RunningLayer::RunningLayer(const ForwardContext& context)
    : before_(std::exchange(running, &context)) {}

RunningLayer::~RunningLayer() { running = before_; }

const ForwardContext* RunningLayer::context() { return running; }

}  // namespace strata
