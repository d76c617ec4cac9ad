#include "strata/pretrained/gguf_weights.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "strata/base/errors.h"
#include "strata/pretrained/gguf_architecture.h"
#include "strata/pretrained/gguf_blocks.h"

namespace strata {
namespace {

constexpr std::int64_t kBytesAtOnce = 1 << 16;

}  // namespace

void read_elements(const GgufFile& file, const GgufTensor& tensor, std::int64_t begin,
                   std::span<float> out) {
  const BlockType* type = find_block_type(tensor.type);
  STRATA_CHECK(type != nullptr, "pretrained.gguf");
  const std::int64_t end = begin + static_cast<std::int64_t>(out.size());
  STRATA_CHECK(begin >= 0 && end <= tensor.numel(), "pretrained.gguf");
  const std::int64_t at_once = kBytesAtOnce / type->bytes;
  std::vector<std::byte> blocks;
  std::array<float, kMaxBlockElements> values;
  for (std::int64_t first = begin / type->elements; first * type->elements < end;
       first += at_once) {
    const std::int64_t last =
        std::min(first + at_once, (end + type->elements - 1) / type->elements);
    blocks.resize(static_cast<std::size_t>((last - first) * type->bytes));
    file.read(tensor.begin + static_cast<std::uint64_t>(first * type->bytes), blocks);
    for (std::int64_t block = first; block < last; ++block) {
      const std::int64_t at = block * type->elements;
      const std::int64_t from = std::max(begin, at), to = std::min(end, at + type->elements);
      const std::byte* bytes = blocks.data() + (block - first) * type->bytes;
      const bool whole = to - from == type->elements;
      type->widen(bytes, whole ? &out[from - begin] : values.data());
      if (!whole)
        std::memcpy(&out[from - begin], &values[from - at],
                    static_cast<std::size_t>(to - from) * sizeof(float));
    }
  }
}

GgufWeights::GgufWeights(std::shared_ptr<const GgufFile> file) : file_(std::move(file)) {
  const GgufArchitecture architecture(*file_);
  for (const auto& [name, tensor] : file_->tensors()) {
    if (find_block_type(tensor.type) == nullptr)
      file_->refuse(name, "a tensor has a type that Strata doesn't have", supported_tensor_types(),
                    tensor_type_name(tensor.type),
                    "convert the model to one of these types, for example Q8_0");
    const auto target = architecture.hugging_face_name(name);
    if (!target) continue;
    const std::int64_t head = architecture.interleaved_rows(name);
    if (head > 0 && (head % 2 != 0 || tensor.shape[0] % head != 0))
      file_->refuse(name, "the rows of a tensor are no whole heads",
                    "a multiple of " + std::to_string(head), std::to_string(tensor.shape[0]));
    weights_.emplace(*target, Weight{&tensor, head});
  }
}

std::vector<std::string> GgufWeights::names() const {
  std::vector<std::string> names;
  for (const auto& [name, weight] : weights_) names.push_back(name);
  return names;
}

const GgufWeights::Weight& GgufWeights::weight(const std::string& name) const {
  const auto found = weights_.find(name);
  if (found == weights_.end())
    file_->refuse("", "the file lacks a tensor", name, std::to_string(weights_.size()) + " others");
  return found->second;
}

const std::vector<std::int64_t>& GgufWeights::shape(const std::string& name) const {
  return weight(name).tensor->shape;
}

// Row r of a head is row 2 r in the file if it belongs to the head's first half, and an odd row if
// it belongs to the second.
void GgufWeights::read(const std::string& name, std::int64_t begin, std::span<float> out) const {
  const Weight& w = weight(name);
  if (w.interleaved_rows == 0) return read_elements(*file_, *w.tensor, begin, out);
  const std::int64_t columns = w.tensor->shape.back(), half = w.interleaved_rows / 2;
  while (!out.empty()) {
    const std::int64_t row = begin / columns, column = begin % columns;
    const std::int64_t in_head = row % w.interleaved_rows;
    const std::int64_t source = row - in_head + in_head % half * 2 + in_head / half;
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(columns - column));
    read_elements(*file_, *w.tensor, source * columns + column, out.first(count));
    begin += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
}

}  // namespace strata
