// Writes the same random weights as a Hugging Face folder and as a GGUF file, and loads both on
// several meshes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/example_states_test.h"
#include "strata/checkpoint/file_tensors.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"
#include "strata/checkpoint/safetensors.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/ranks.h"
#include "strata/device/device.h"
#include "strata/models/hugging_face.h"
#include "strata/optim/master_weights.h"
#include "strata/pretrained/example_gguf_test.h"

namespace strata {
namespace {

std::string bytes_of_tensor(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()};
}

// Two heads of queries and one of keys, whose halves the file interleaves.
at::Tensor interleaved(const at::Tensor& rows, std::int64_t heads) {
  return rows.view({heads, 2, -1, rows.size(1)}).transpose(1, 2).reshape(rows.sizes());
}

const std::map<std::string, std::string>& gguf_names() {
  static const std::map<std::string, std::string> names = {
      {"transformer.wte.weight", "token_embd.weight"},
      {"transformer.wpe.weight", "position_embd.weight"},
      {"transformer.ln_f.weight", "output_norm.weight"},
      {"transformer.ln_f.bias", "output_norm.bias"},
      {"model.embed_tokens.weight", "token_embd.weight"},
      {"model.norm.weight", "output_norm.weight"},
      {"transformer.h.0.ln_1", "blk.0.attn_norm"},
      {"transformer.h.0.attn.c_attn", "blk.0.attn_qkv"},
      {"transformer.h.0.attn.c_proj", "blk.0.attn_output"},
      {"transformer.h.0.ln_2", "blk.0.ffn_norm"},
      {"transformer.h.0.mlp.c_fc", "blk.0.ffn_up"},
      {"transformer.h.0.mlp.c_proj", "blk.0.ffn_down"},
      {"model.layers.0.input_layernorm", "blk.0.attn_norm"},
      {"model.layers.0.self_attn.q_proj", "blk.0.attn_q"},
      {"model.layers.0.self_attn.k_proj", "blk.0.attn_k"},
      {"model.layers.0.self_attn.v_proj", "blk.0.attn_v"},
      {"model.layers.0.self_attn.o_proj", "blk.0.attn_output"},
      {"model.layers.0.post_attention_layernorm", "blk.0.ffn_norm"},
      {"model.layers.0.mlp.gate_proj", "blk.0.ffn_gate"},
      {"model.layers.0.mlp.up_proj", "blk.0.ffn_up"},
      {"model.layers.0.mlp.down_proj", "blk.0.ffn_down"}};
  return names;
}

std::string gguf_name(const std::string& name) {
  if (const auto found = gguf_names().find(name); found != gguf_names().end()) return found->second;
  const std::size_t dot = name.rfind('.');
  return gguf_names().at(name.substr(0, dot)) + name.substr(dot);
}

class GgufWeightsTest : public ::testing::Test {
 protected:
  static DecoderOptions gpt() {
    return {.layers = 1, .width = 8, .heads = 2, .vocab = 7, .context = 32};
  }
  static DecoderOptions llama() {
    return completed({.kind = DecoderKind::kLlama,
                      .layers = 1,
                      .width = 8,
                      .heads = 2,
                      .vocab = 7,
                      .context = 32,
                      .kv_heads = 1,
                      .mlp_width = 16});
  }

  void write(const DecoderOptions& options) {
    const Sequential model = make_model(options);
    std::vector<NamedTensor> tensors;
    ExampleGguf file = sizes_of(options);
    for (int layer = 0; layer < model.num_layers(); ++layer) {
      const LayerLayout& layout = model.layout(layer);
      for (std::size_t i = 0; i < layout.specs.size(); ++i) {
        const WeightSpec& spec = layout.specs[i];
        if (layout.placements[i].borrowed) continue;  // the file has a tied weight once
        const NamedState state{.name = model.name(layer) + "." + spec.name, .shape = spec.shape};
        const at::Tensor whole = at::randn(spec.shape);
        for (const FileTensor& part : file_tensors({.decoder = &options}, state)) {
          tensors.push_back({part.name, part_of(whole, part).contiguous()});
          at::Tensor rows = whole.narrow(0, part.row_begin, part.rows);
          if (part.name.find("q_proj") != std::string::npos) rows = interleaved(rows, 2);
          if (part.name.find("k_proj") != std::string::npos) rows = interleaved(rows, 1);
          file.tensor(gguf_name(part.name), rows.sizes().vec(), 0, bytes_of_tensor(rows));
        }
      }
    }
    std::filesystem::create_directory(folder_.path("hf"));
    write_safetensors(folder_.path("hf/model.safetensors"), tensors);
    std::ofstream(folder_.path("hf/config.json")) << hugging_face_config(options);
    file.write(path_);
  }

  static ExampleGguf sizes_of(const DecoderOptions& options) {
    ExampleGguf file;
    if (options.kind == DecoderKind::kLlama) {
      add_example_llama(file);
    } else {
      file.text("general.architecture", "gpt2").integer("gpt2.block_count", 1);
      file.integer("gpt2.context_length", 32).integer("gpt2.embedding_length", 8);
      file.integer("gpt2.feed_forward_length", 32).integer("gpt2.attention.head_count", 2);
      file.real("gpt2.attention.layer_norm_epsilon", 1e-5f);
    }
    return add_example_tokenizer(file);
  }

  ScratchFolder folder_;
  std::string path_ = folder_.path("model.gguf");
};

// bf16 weights are the high halves of a run's fp32 weights, which round ties away from zero. More
// elements than are read at once.
TEST(LoadWeights, RoundsTo16BitsAsTrainingDoes) {
  const ScratchFolder folder;
  const DecoderOptions options{.layers = 1, .width = 16, .heads = 2, .vocab = 70'001, .context = 9};
  const std::int64_t numel = options.vocab * options.width, first = 5, last = 3;
  at::Tensor weight = at::arange(numel, host_options(at::kFloat)).mul_(1.0 / 512).add_(1);
  write_safetensors(
      folder.path("model.safetensors"),
      std::vector<NamedTensor>{{"wte.weight", weight.view({options.vocab, options.width})}});
  std::ofstream(folder.path("config.json")) << hugging_face_config(options);
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor local = at::zeros({numel - first - last}, host_options(type));
    load_weights(folder.path(""), options,
                 {{.name = "embed.tokens.weight",
                   .shape = {options.vocab, options.width},
                   .local = local,
                   .runs = {{.local = 0, .global = first, .numel = local.numel()}}}});
    const at::Tensor expected = at::zeros_like(local);
    MasterWeights{expected, type == at::kHalf ? at::Tensor() : expected.to(at::kShort)}.assign(
        weight.narrow(0, first, local.numel()));
    EXPECT_TRUE(local.equal(expected)) << type;
    const bool ties_to_even = local.equal(weight.narrow(0, first, local.numel()).to(type));
    EXPECT_EQ(ties_to_even, type == at::kHalf);
  }
}

TEST_F(GgufWeightsTest, GgufFileLoadsAsItsHuggingFaceFolder) {
  for (const DecoderOptions& options : {gpt(), llama()}) {
    write(options);
    const CheckpointReader reader = CheckpointReader::open(path_);
    EXPECT_TRUE(reader.is_pretrained());
    EXPECT_EQ(completed(reader.decoder()), completed(options));
    EXPECT_EQ(reader.tokenizer(), path_);
    for (int rank = 0; rank < 2; ++rank) {
      Mesh mesh;
      mesh[Axis::kTensor] = options.kind == DecoderKind::kGpt ? 2 : 1;
      mesh[Axis::kPipeline] = options.kind == DecoderKind::kGpt ? 1 : 2;
      const ExampleStates ours = ExampleRank(options, {mesh}, rank).held();
      const ExampleStates theirs = ExampleRank(options, {mesh}, rank).held();
      load_weights(path_, options, ours.weights);
      load_weights(folder_.path("hf"), options, theirs.weights);
      ASSERT_EQ(ours.weights.size(), theirs.weights.size());
      for (std::size_t i = 0; i < ours.weights.size(); ++i)
        EXPECT_TRUE(at::equal(ours.weights[i].local, theirs.weights[i].local))
            << ours.weights[i].name << " of rank " << rank;
    }
    std::filesystem::remove_all(folder_.path("hf"));
  }
}

// The checkpoint of a run with the tokenizer of a GGUF file is complete without that file.
TEST_F(GgufWeightsTest, CheckpointKeepsTokenizerOfGgufFile) {
  write(llama());
  std::string saved;
  run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
    CheckpointSaver saver({.folder = folder_.path("saved"), .model = llama(), .tokenizer = path_},
                          group, group);
    const ExampleStates states = ExampleRank(llama(), {}, 0).owned();
    saver.save({1, 4}, states.weights, states.slots);
    saved = saver.wait();
  });
  std::filesystem::remove(path_);
  const CheckpointReader reader = CheckpointReader::open(saved);
  EXPECT_EQ(reader.tokenizer(), saved);
  EXPECT_NE(reader.text("tokenizer.json").find("<|end|>"), std::string::npos);
  EXPECT_NE(reader.text("tokenizer_config.json").find("chat_template"), std::string::npos);
}

TEST_F(GgufWeightsTest, RefusesFileOfAnotherModel) {
  write(llama());
  DecoderOptions wider = llama();
  wider.vocab = 9;
  const ExampleStates states = ExampleRank(wider, {}, 0).held();
  EXPECT_THROW(load_weights(path_, wider, states.weights), UserError);
  EXPECT_THROW(position_at(path_, llama()), UserError);
  sizes_of(llama()).write(path_);
  EXPECT_THROW(CheckpointReader::open(path_).decoder(), UserError);
}

}  // namespace
}  // namespace strata
