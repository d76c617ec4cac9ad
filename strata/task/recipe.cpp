#include "strata/task/recipe.h"

#include <algorithm>
#include <thread>

#include "strata/base/enum_names.h"
#include "strata/device/determinism.h"

namespace strata {
namespace {

constexpr double kMostSteps = 1e12;
constexpr double kMostSamples = 1 << 24;

}  // namespace

void describe(OptionSet& set, const std::string& prefix, TrainOptions& options) {
  set.add(prefix + ".steps", &options.steps,
          {.help = "Optimizer updates.", .unit = "steps", .minimum = 1, .maximum = kMostSteps});
  set.add(
      prefix + ".mini_batch", &options.mini_batch,
      {.help = "Samples of one update.", .unit = "samples", .minimum = 1, .maximum = kMostSamples});
  set.add(prefix + ".micro_batch", &options.micro_batch,
          {.help = "Samples that go through the pipeline at once; the last one may be smaller; 0: "
                   "the fastest that fits, by measuring.",
           .unit = "samples",
           .minimum = 0,
           .maximum = kMostSamples});
  set.add(prefix + ".warmup", &options.warmup,
          {.help = "Steps over which the learning rate rises.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".decay", &options.decay, all_named<Decay>(),
          {.help = "How the learning rate falls."});
  set.add(prefix + ".final_fraction", &options.final_fraction,
          {.help = "Learning rate of the last step, as a fraction of the peak.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".clip", &options.clip,
          {.help = "Largest global gradient norm; 0: no clipping.", .minimum = 0});
  set.add(prefix + ".label_smoothing", &options.label_smoothing,
          {.help = "Fraction of each training target that is spread over the whole vocabulary.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 1});
  set.add(prefix + ".precision", &options.precision,
          {{"fp32", at::kFloat}, {"bf16", at::kBFloat16}, {"fp16", at::kHalf}},
          {.help = "Of weights and activations; 16 bit keeps fp32 weights for the optimizer, adds "
                   "gradients in fp32, and fp16 scales the loss."});
  set.add(prefix + ".seed", &options.seed,
          {.help = "Of first values, dropout and the order of samples.", .minimum = 0});
  set.add(
      prefix + ".deterministic", &options.deterministic,
      {.help = "A GPU computes the same bits again: deterministic kernels and workspaces of fixed "
               "size. A CPU does so anyway."});
  set.add(prefix + ".primitives", &options.primitives, all_named<PrimitivesChoice>(),
          {.help = "Whose kernels compute on the device: Strata's own or ATen's; auto: own on a "
                   "CPU, aten on CUDA, where no own kernel has been measured yet."});
  set.add(prefix + ".target", &options.target,
          {.help = "Quality of a validation that ends the run: val_loss<=1.5, or a metric of the "
                   "task, accuracy>=0.9; empty: the run takes all of its steps."});
  set.add(prefix + ".validate_every", &options.validate_every,
          {.help = "Steps between validations; 0: only at the end.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".validation_samples", &options.validation_samples,
          {.help = "Samples of a validation; 0: all.", .unit = "samples", .minimum = 0});
  set.add(prefix + ".checkpoint_folder", &options.checkpoint_folder,
          {.help = "Where checkpoints go; empty: none are written."});
  set.add(prefix + ".checkpoint_every", &options.checkpoint_every,
          {.help = "Steps between checkpoints; 0: only at the end.",
           .unit = "steps",
           .minimum = 0,
           .maximum = kMostSteps});
  set.add(prefix + ".keep_checkpoints", &options.keep_checkpoints,
          {.help = "Newest checkpoints that are kept; 0: all.", .minimum = 0});
  set.add(prefix + ".tensorboard", &options.tensorboard,
          {.help = "Folder of TensorBoard event files; empty: none are written."});
  set.add(
      prefix + ".graph", &options.graph, all_named<GraphMode>(),
      {.help = "Whether steps are recorded and replayed (CUDA graphs; on a CPU actions are only "
               "repeated); auto: on GPUs of one rank each; on: refused where a step cannot be."});
  set.add(
      prefix + ".log_lag", &options.log_lag,
      {.help = "Steps that may run before the loss of one is read; 1: a GPU never waits for the "
               "host.",
       .unit = "steps",
       .minimum = 0,
       .maximum = 1});
}

LearningRateSchedule Recipe::learning_rate() const {
  return {.peak = optimizer.learning_rate,
          .warmup_steps = train.warmup,
          .total_steps = train.steps,
          .decay = train.decay,
          .final_fraction = train.final_fraction};
}

int Recipe::threads_per_rank() const {
  if (mesh.threads > 0) return static_cast<int>(mesh.threads);
  const auto cores = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  return static_cast<int>(std::max<std::int64_t>(1, cores / mesh.axes.size()));
}

Device Recipe::rank_device() const {
  const Device found = Device::parse(name_of(device));
  prepare_device(found.kind, train.deterministic);
  choose_primitives(found.kind, train.primitives);
  return found;
}

DeviceKind Recipe::device_kind() const {
  if (device == DeviceChoice::kAuto) return Device::parse(name_of(device)).kind;
  return device == DeviceChoice::kCuda ? DeviceKind::kCuda : DeviceKind::kCpu;
}

void describe_shared(OptionSet& set, Recipe& recipe) {
  describe(set, "train", recipe.train);
  describe(set, "train.optimizer", recipe.optimizer);
  describe(set, "train.outer_steps", recipe.outer);
  describe(set, "mesh", recipe.mesh);
  describe(set, "mesh", recipe.device);
  describe(set, "memory", recipe.memory);
}

std::int64_t validated_samples(const TrainOptions& options, std::int64_t available) {
  return options.validation_samples == 0 ? available
                                         : std::min(options.validation_samples, available);
}

}  // namespace strata
