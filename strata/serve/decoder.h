/// Continues texts token by token with weights and a cache of keys and values in pages, one object
/// per rank.
///
/// Build it in every rank's thread, fill() it from a checkpoint, and call the same methods in the
/// same order. A pass runs new tokens of several texts together and reads the weights once; the
/// caller chooses the tokens and the pages (batching/pass.h).
///
/// On a CPU the logits of a token have the bits that training and evaluation compute for the text
/// at the beginning of a whole sample, on as many tensor-parallel ranks. They do not depend on the
/// other texts of a pass, on how a text is cut into passes, or on the pages. There are two
/// exceptions: processors for which bit_check.h finds a difference; and, with q = 32 for a context
/// below 192, 64 below 768, else 256, the last positions of a context if context mod q is 1, 2 or
/// 3, as many as that. With weights in 8 or 4 bits (models/quantised_model.h) the bits are those of
/// an fp32 model whose weights are the rounded values.
///
/// Threads  one rank's thread; forward() is collective.
/// Errors   InternalError: a pass that does not fit the pages. UserError: a folder that is not on a
///          disk or has no room. What layers, peers and budgets throw.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/batching/pass.h"
#include "strata/checkpoint/named_state.h"
#include "strata/checkpoint/quantised_rows.h"
#include "strata/comm/group.h"
#include "strata/nn/graph/sequential.h"
#include "strata/pipeline/stage_machine.h"
#include "strata/schedule/step_plan.h"
#include "strata/serve/key_value_cache.h"
#include "strata/serve/weight_tiers.h"
#include "strata/tier/store.h"

namespace strata {

/// Cuts the layers evenly over mesh.pp stages. `tiers`: where their weights live; by default on the
/// device. UserError: more stages than layers.
StepPlan decoder_steps(const Sequential& model, const Mesh& mesh, TierLayout tiers = {});

/// Bytes of one page of `page_tokens` tokens on the rank that has the most; `model` as for Decoder.
/// A budget of bytes divided by it is the number of pages of every rank.
std::int64_t page_bytes(const Sequential& model, const StepPlan& steps, std::int64_t page_tokens);

/// What a pass computes of the tokens that need logits, in the order of the pass. Undefined on
/// ranks without the last layer.
struct PassOutputs {
  at::Tensor logits;  ///< [rows, V] fp32
  /// [rows, C], after the last norm: logits are products of them. Undefined if the last layer has
  /// no such output.
  at::Tensor states;
};

class Decoder {
 public:
  /// `model`: made for mesh.tp ranks with the logits as its output, by make_model() or
  /// make_served_model(); must outlive the decoder.
  /// `steps`: decoder_steps() of it; the mesh's dp is 1. `tiers`: for weights off the device.
  Decoder(const Sequential& model, StepPlan steps, const PageRoom& room, const Group& world,
          const WeightTiers& tiers = {});
  /// With all weights on the device.
  Decoder(const Sequential& model, const Mesh& mesh, const PageRoom& room, const Group& world)
      : Decoder(model, decoder_steps(model, mesh), room, world) {}

  /// With the weights of a running trainer, in place: a pass computes with those that the last step
  /// left. `trained`, `plan`: the trainer's; `model`: of the same layers; `world`: the ranks of the
  /// trainer's replica. fill() is not for such a decoder. After a step, pages that were filled
  /// before have keys and values of old weights. UserError: replicas that have only parts of the
  /// weights (ZeRO 3), a model of other weights.
  Decoder(const Sequential& model, LayerStore& trained, const StepPlan& plan, const PageRoom& room,
          const Group& world);

  /// Calls `read` with the weights of one layer after the other, which it fills: the host may have
  /// no room for all layers at once. A rank with a use of a tied weight, but not its owner, has a
  /// copy. Of weights in 8 or 4 bits it fills whole fp32 rows (checkpoint/quantised_rows.h), which
  /// are rounded then.
  void fill(const ReadStates& read);

  /// Moves pages between the device, the host and the disk, before a pass. All ranks pass the same.
  void move_pages(const PageMoves& moves) { cache_.move(moves); }

  /// Adds the tokens of a pass to the pages. All ranks pass the same.
  PassOutputs forward(const Pass& pass);

  const PageRoom& room() const { return cache_.room(); }

  /// The rank that makes decisions for the others: it has the logits and is the first of its
  /// slices.
  int deciding_rank() const;
  bool decides() const { return groups_.world.rank() == deciding_rank(); }

  /// The ranks that decode together.
  Group& group() { return groups_.world; }

 private:
  Decoder(const Sequential& model, StepPlan steps, const PageRoom& room, const Group& world,
          const WeightTiers& tiers, LayerStore* trained);

  std::vector<int> layers_here() const;
  Pin pin_weights(int layer);
  std::vector<NamedState> weights_of(int layer);
  void fill_quantised(int layer, const ReadStates& read);

  const Sequential& model_;
  StepPlan steps_;
  MeshGroups groups_;
  MemoryAccount& host_account_;      // outlived by what other ranks still read
  std::unique_ptr<LayerStore> own_;  // null: the weights are a trainer's
  LayerStore& store_;
  KeyValueCache cache_;
  StageMachine machine_;
  std::uint32_t passes_ = 0;  // modulo 2^32
};

}  // namespace strata
