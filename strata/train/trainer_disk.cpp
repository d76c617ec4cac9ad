// Training with states on a disk. Part of Trainer.
//
// Ranks commit a step one after another, and a crash may occur in between. Then some have the new
// step and some the previous one, which is still intact, because writes wait until all ranks have
// committed. All ranks resume from the earliest.
#include <algorithm>
#include <numeric>

#include "strata/base/checksum.h"
#include "strata/base/error_source.h"
#include "strata/base/errors.h"
#include "strata/base/units.h"
#include "strata/train/disk_commit.h"
#include "strata/train/trainer.h"

namespace strata {
namespace {

constexpr const char* kDiskOperation = "train.disk";

void require_room(const TrainerDisk& disk, const std::string& folder, std::int64_t bytes) {
  if (disk.bytes == 0 || bytes <= disk.bytes) return;
  throw UserError({.operation = kDiskOperation,
                   .where = folder,
                   .what = "the budget of the disk is too small for what lives there",
                   .expected = format_bytes(bytes) + " or more: two slots of everything",
                   .got = format_bytes(disk.bytes),
                   .fix = "set memory.disk.bytes=" + format_bytes_exactly(bytes)});
}

constexpr ErrorSource kFolderErrors{
    kDiskOperation,
    "continue with the recipe that wrote it, or resume from a checkpoint in "
    "train.checkpoint_folder, which fits every mesh"};

std::int64_t smallest(Group& group, std::int64_t number) {
  std::vector<double> numbers(static_cast<std::size_t>(group.size()), 0.0);
  numbers[static_cast<std::size_t>(group.rank())] = static_cast<double>(number);
  group.all_reduce(numbers);
  return static_cast<std::int64_t>(*std::ranges::min_element(numbers));
}

Group with_all(const Group& world) {
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return world.subgroup(ranks, "disk");
}

}  // namespace

std::map<int, LayerOnDisk> Trainer::layers_on_disk() const {
  std::map<int, LayerOnDisk> layers;
  for (const int layer : layers_) {
    const ShardPlacement placement = placement_of(layer);
    if (placement.tiers.states != Tier::kDisk || placement.shard.size() == 0) continue;
    const auto element = static_cast<std::int64_t>(c10::elementSize(placement.dtype));
    layers[layer] = {
        .weights = placement.shard.size() * element,
        .states = placement.shard.size() *
                  (4 * placement.optimizer_slots + master_bytes(placement.dtype)),
        .weights_on_host = placement.tiers.updated_weights() != Tier::kDisk,
        .fetches_weights = placement.tiers.fetches_weights(),
        .gradients = placement.on_disk(StateKind::kGradientShard) ? 4 * placement.shard.size() : 0};
  }
  return layers;
}

// A text that is equal if the chunks have the same meaning.
std::string Trainer::disk_layout() const {
  const Mesh& mesh = plan_.decisions().mesh;
  std::string layers;
  for (const int layer : layers_) {
    const ShardPlacement placement = placement_of(layer);
    layers += model_.name(layer) + " " + std::to_string(placement.shard.begin) + " " +
              std::to_string(placement.shard.end) + " " + name_of(placement.tiers.weights) + " " +
              name_of(placement.tiers.states) + "\n";
    for (const WeightSpec& spec : model_.layout(layer).specs) layers += spec.name + "\n";
  }
  std::string slots;
  for (const std::string& slot : optimizer_->slot_names()) slots += " " + slot;
  return mesh.name(groups_.world.rank()) + " of " + mesh.text() + "; " +
         c10::toString(options_.precision) + slots + "; layers " +
         checksum_text(checksum(std::as_bytes(std::span(layers))));
}

std::unique_ptr<DiskResidency> Trainer::make_disk() {
  const std::map<int, LayerOnDisk> layers = layers_on_disk();
  std::vector<LayerOnDisk> values;
  for (const auto& [number, layer] : layers) values.push_back(layer);
  const bool any = smallest(groups_.world, layers.empty() ? 1 : 0) == 0;
  if (!any) return nullptr;
  const TrainerDisk& disk = options_.disk;
  STRATA_CHECK(!disk.path.empty(), kDiskOperation);
  // A rank without states on disk takes part in commits.
  if (values.empty()) values.push_back({.weights = 1, .weights_on_host = true});
  const std::string folder = rank_folder(disk.path, groups_.world.rank());
  const ChunkTable table = chunk_table(values);
  const std::vector<std::int64_t>& chunks = table.bytes;
  require_room(disk, folder, file_bytes(values));
  if (disk.resume && !ChunkFile::exists(folder))
    throw kFolderErrors.user(folder, "this rank has committed nothing here", disk_layout(),
                             "no such step");
  const int ranks = groups_.world.size();
  const bool all_committed = smallest(groups_.world, ChunkFile::exists(folder) ? 1 : 0) == 1;
  ChunkFileOptions file_options = disk.file;
  // An interrupted first commit cannot be resumed.
  if (!all_committed && is_first_commit(folder, ranks)) file_options.replace = true;
  DiskFiles files;
  files.states = disk.resume ? ChunkFile::open(folder, file_options)
                             : ChunkFile::create(folder, chunks, file_options);
  if (disk.resume) go_to_common_step(*files.states, folder, chunks);
  file_options.slots = 1;
  if (!table.gradients.empty())
    files.gradients = ChunkFile::create(folder + "/gradients", table.gradients, file_options);
  std::function<void()> agree = [] {};
  if (groups_.world.size() > 1)
    agree = [group = std::make_shared<Group>(with_all(groups_.world))] { group->barrier(); };
  return std::make_unique<DiskResidency>(std::move(files), layers, &host_account_, std::move(agree),
                                         &track_trace_, groups_.world.device());
}

void Trainer::go_to_common_step(ChunkFile& file, const std::string& folder,
                                const std::vector<std::int64_t>& chunks) {
  const std::int64_t common = smallest(groups_.world, *file.committed_step());
  const DiskCommit commit = parse_commit(*file.committed_step(), file.user_text(), folder);
  bool same = commit.layout == disk_layout() &&
              static_cast<std::size_t>(file.num_chunks()) == chunks.size();
  for (std::size_t i = 0; same && i < chunks.size(); ++i)
    same = file.chunk_bytes(static_cast<int>(i)) == chunks[i];
  if (!same) {
    throw kFolderErrors.user(folder,
                             "the folder holds the state of another mesh, model or placement",
                             disk_layout(), commit.layout);
  }
  if (*file.committed_step() == common) return;
  if (file.previous_step() != common) {
    throw kFolderErrors.user(
        folder, "the ranks' folders are not of one run: they hold no common step",
        "step " + std::to_string(common), "step " + std::to_string(*file.committed_step()));
  }
  // After a rollback only the text records that all ranks have committed.
  DiskCommit back = parse_commit(common, ChunkFile::commits(folder).at(1).user_text, folder);
  back.first = false;
  file.go_back(to_text(back));
}

void Trainer::commit(DiskCommit commit) {
  STRATA_CHECK(disk_ != nullptr, kDiskOperation);
  if (committed_.ready()) committed_.wait();  // it may have failed
  commit.layout = disk_layout();
  commit.scale = machine_->loss_scale();
  commit.ranks = groups_.world.size();
  commit.first = !options_.disk.resume && !has_committed_;
  has_committed_ = true;
  for (const int layer : layers_) disk_->keep(store_.state(layer));
  committed_ = disk_->commit(commit.position.steps_done, to_text(commit));
}

void Trainer::await_commit() {
  committed_.wait();
  if (disk_ && disk_->file().committed_step()) disk_->file().require_committed();
}

TrainingPosition Trainer::resume() {
  STRATA_CHECK(disk_ != nullptr && options_.disk.resume, kDiskOperation);
  const ChunkFile& file = disk_->file();
  const DiskCommit commit =
      parse_commit(*file.committed_step(), file.user_text(), options_.disk.path);
  for (const int layer : layers_) disk_->restore(store_.state(layer));
  steps_done_ = commit.position.steps_done;
  LossScale scale = machine_->loss_scale();
  scale.scale = commit.scale.scale;
  scale.good_steps = commit.scale.good_steps;
  scale.skipped = commit.scale.skipped;
  machine_->set_loss_scale(scale);
  remember_scale();
  bring_weights(/*round=*/false);
  return commit.position;
}

}  // namespace strata
