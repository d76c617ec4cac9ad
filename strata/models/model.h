/// Builds the model that the options name: a GPT, or a Llama with its relatives Qwen 2 and Qwen 3.
///
/// Shapes  B samples of T tokens, width C: tokens and targets [B, T] int64, values [B, T, C] of the
///         precision, [B, T/n, C] on each of n ranks with sequence parallelism; loss and logits
///         fp32.
/// Errors  UserError: fields that contradict the kind or each other; samples longer than the
///         context; heads, or the context with sequence parallelism, that don't divide among the
///         tensor-parallel ranks.
#pragma once

#include "strata/device/device.h"
#include "strata/models/decoder_options.h"
#include "strata/nn/graph/sequential.h"

namespace strata {

enum class DecoderOutput { kLoss, kLogits };

/// kLoss: batch inputs "tokens" and "targets", the last layer is the loss. kLogits: batch input
/// "tokens", the last layer returns [B, V] logits of the last position; weights have the same
/// names. Costs are those of one rank of the split, bytes those on `device`. `precision` is that of
/// weights and values: fp32, bf16 or fp16.
Sequential make_model(const DecoderOptions& options, DecoderOutput output = DecoderOutput::kLoss,
                      TensorSplit split = {}, at::ScalarType precision = at::kFloat,
                      DeviceKind device = DeviceKind::kCpu);

/// The same for one kind, which overrides that of the options.
Sequential make_gpt(DecoderOptions options, DecoderOutput output = DecoderOutput::kLoss,
                    TensorSplit split = {}, at::ScalarType precision = at::kFloat,
                    DeviceKind device = DeviceKind::kCpu);
Sequential make_llama(DecoderOptions options, DecoderOutput output = DecoderOutput::kLoss,
                      TensorSplit split = {}, at::ScalarType precision = at::kFloat,
                      DeviceKind device = DeviceKind::kCpu);

}  // namespace strata
