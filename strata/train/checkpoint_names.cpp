#include "strata/train/checkpoint_names.h"

#include "strata/base/errors.h"
#include "strata/models/hugging_face.h"
#include "strata/train/named_state.h"

namespace strata {
std::vector<FileTensor> file_tensors(const DecoderOptions* model, const NamedState& weight) {
  const std::int64_t rows = weight.shape.empty() ? 1 : weight.shape[0];
  const std::int64_t columns = rows == 0 ? 0 : weight.numel() / rows;
  if (!model) return {{weight.name, weight.shape, 0, rows, columns, false}};
  std::vector<FileTensor> tensors;
  std::int64_t covered = 0;
  for (const HuggingFaceTensor& part : hugging_face_tensors(*model, weight.name)) {
    const std::int64_t count = part.rows == 0 ? rows - part.row_begin : part.rows;
    STRATA_CHECK(part.row_begin >= 0 && count >= 0 && part.row_begin + count <= rows,
                 "train.file_tensors");
    STRATA_CHECK(!part.transposed || weight.shape.size() == 2, "train.file_tensors");
    std::vector<std::int64_t> shape = weight.shape;
    if (!shape.empty()) shape[0] = count;
    if (part.transposed) shape = {columns, count};
    tensors.push_back(
        {part.name, std::move(shape), part.row_begin, count, columns, part.transposed});
    covered += count;
  }
  STRATA_CHECK_EQ(covered, rows, "train.file_tensors");
  return tensors;
}

}  // namespace strata
