// A piece of work is one head of keys of a sample with the heads of queries that share it, in
// forward also a part of the blocks of queries.
//
// A row's bits depend on its own blocks of keys alone. So any cut of a sample between threads, and
// decoding token by token, has the bits of a whole sample.
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "strata/nn/host/elements.h"
#include "strata/nn/host/host_primitives.h"
#include "strata/nn/kernels/attention_tiles.h"
#include "strata/nn/kernels/packed_keys.h"

namespace strata {
namespace {

using kernels::AttentionTile;
using kernels::HeadKeys;
using kernels::KeyUse;
using kernels::PackedKeys;

constexpr std::array<std::int32_t, 1> kFirstPage = {0};

// Memory for the tiles of one thread. Its size depends on the lists of blocks, not on the length of
// samples.
struct Workspace {
  Workspace(std::int64_t block, std::int64_t width)
      : block(block), width(width), packed(block, width) {
    STRATA_CHECK_EQ(block % kernels::kTileUnit, 0, "nn.attend_sparse");
    const std::int64_t padded = kernels::tile_width(width);
    for (float** rows : {&q, &y, &dy, &dq, &part}) *rows = take(block * padded);
    for (float** scores : {&scores, &products}) *scores = take(block * block);
    for (float** numbers : {&top, &sum, &along}) *numbers = take(block);
  }

  // The calling thread's, which lives as long as the thread.
  static Workspace& of_thread(std::int64_t block, std::int64_t width) {
    thread_local std::unique_ptr<Workspace> kept;
    if (!kept || kept->block != block || kept->width != width)
      kept = std::make_unique<Workspace>(block, width);
    return *kept;
  }

  std::int64_t block, width;
  PackedKeys packed;
  float *q, *y, *dy, *dq, *part, *scores, *products, *top, *sum, *along;
  std::vector<std::int32_t> blocks;

 private:
  float* take(std::int64_t count) {
    memory_.push_back(hwy::AllocateAligned<float>(static_cast<std::size_t>(count)));
    return memory_.back().get();
  }
  std::vector<hwy::AlignedFreeUniquePtr<float[]>> memory_;
};

// Rows of a head in x [B, T, heads, width].
struct HeadRows {
  HeadRows(const at::Tensor& x, std::int64_t sample, std::int64_t head)
      : element(element_of(x)),
        data(static_cast<std::byte*>(x.data_ptr()) +
             (sample * x.stride(0) + head * x.stride(2)) * kernels::bytes_of(element)),
        stride(x.stride(1) * kernels::bytes_of(element)),
        width(x.size(3)) {}

  void read(std::int64_t first, std::int64_t rows, float scale, float* to) const {
    const std::int64_t padded = kernels::tile_width(width);
    for (std::int64_t row = 0; row < rows; ++row, to += padded) {
      kernels::widen(element, data + (first + row) * stride, to, width);
      for (std::int64_t i = 0; i < width; ++i) to[i] *= scale;
      std::fill(to + width, to + padded, 0.0f);
    }
  }
  void write(std::int64_t row, const float* from) const {
    kernels::narrow(element, from, data + row * stride, width);
  }

  kernels::Element element;
  std::byte* data;
  std::int64_t stride, width;
};

HeadKeys keys_of(const at::Tensor& k, const at::Tensor& v, std::int64_t sample, std::int64_t head) {
  const auto rows_of = [&](const at::Tensor& x) {
    const HeadRows rows(x, sample, head);
    return kernels::RowsInPages{.data = rows.data, .token_stride = rows.stride, .page_stride = 0};
  };
  return {.element = element_of(k),
          .keys = rows_of(k),
          .values = rows_of(v),
          .pages = kFirstPage,
          .page_tokens = k.size(1),
          .tokens = k.size(1)};
}

float scale_of(std::int64_t width) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(width)));
}

// Queries of one head, of tokens [first, first + rows) of the text, in one block.
struct TileOfQueries {
  std::int64_t first, rows;
};

// Calls f(tile of queries, head of queries) for the tokens [first, end) and the heads that share a
// head of keys. workspace.blocks has the tile's blocks of keys.
template <typename F>
void for_tiles(const PatternOfHeads& heads, std::int64_t key_head, std::int64_t shared,
               std::int64_t first, std::int64_t end, Workspace& workspace, F f) {
  const std::int64_t length = heads.pattern.block;
  for (std::int64_t token = first; token < end;) {
    const std::int64_t block = token / length;
    const TileOfQueries queries{token, std::min((block + 1) * length, end) - token};
    std::int64_t listed = -1;  // the form in workspace.blocks
    for (std::int64_t head = key_head * shared; head < (key_head + 1) * shared; ++head) {
      const std::int64_t form = heads.pattern.form(heads.first + head);
      if (form != listed) heads.pattern.key_blocks(form, block, workspace.blocks);
      listed = form;
      workspace.packed.reserve(workspace.blocks.size() + 1);
      f(queries, head);
    }
    token += queries.rows;
  }
}

AttentionTile tile_of(const PatternOfHeads& heads, const TileOfQueries& queries,
                      std::int64_t width) {
  return {.rows = queries.rows,
          .block = heads.pattern.block,
          .width = width,
          .query = queries.first,
          .window = heads.pattern.exact_window()};
}

// Leaves the output in workspace.y and the logarithms of sums in workspace.sum.
void attend_to_blocks(AttentionTile tile, Workspace& workspace) {
  const std::int64_t padded = kernels::tile_width(tile.width);
  std::fill_n(workspace.y, tile.rows * padded, 0.0f);
  std::fill_n(workspace.top, tile.rows, -std::numeric_limits<float>::infinity());
  std::fill_n(workspace.sum, tile.rows, 0.0f);
  for (const std::int32_t block : workspace.blocks) {
    tile.key = block * tile.block;
    kernels::attend_tile(tile, workspace.packed.find(block), workspace.q, workspace.scores,
                         {workspace.y, workspace.top, workspace.sum});
  }
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    const float share = 1 / workspace.sum[row];
    float* y = workspace.y + row * padded;
    for (std::int64_t i = 0; i < tile.width; ++i) y[i] *= share;
    workspace.sum[row] = workspace.top[row] + std::log(workspace.sum[row]);
  }
}

// Queries and outputs of a sample, whose first row is a token's of the text.
struct RowsOfText {
  const at::Tensor &q, &y;
  std::int64_t sample, token;
};

// Writes the outputs of a tile; leaves the logarithms of sums in workspace.sum.
void attend_rows(const RowsOfText& rows, const PatternOfHeads& heads, const TileOfQueries& queries,
                 std::int64_t head, Workspace& workspace) {
  const std::int64_t width = rows.q.size(3), first = queries.first - rows.token;
  HeadRows(rows.q, rows.sample, head).read(first, queries.rows, scale_of(width), workspace.q);
  attend_to_blocks(tile_of(heads, queries, width), workspace);
  const HeadRows out(rows.y, rows.sample, head);
  for (std::int64_t row = 0; row < queries.rows; ++row)
    out.write(first + row, workspace.y + row * kernels::tile_width(width));
}

}  // namespace

Attended HostAttentionPrimitives::attend_sparse(const at::Tensor& q, const at::Tensor& k,
                                                const at::Tensor& v,
                                                const PatternOfHeads& heads) const {
  const std::int64_t samples = q.size(0), length = q.size(1), width = q.size(3);
  const std::int64_t key_heads = k.size(2), shared = q.size(2) / key_heads;
  const std::int64_t block = heads.pattern.block, blocks = (length + block - 1) / block;
  const at::Tensor y = at::empty(q.sizes(), q.options());
  const at::Tensor log_sum = at::empty({samples, q.size(2), length}, host_options(at::kFloat));
  // Cuts of a sample share few blocks of keys, so there are no more than threads need.
  const std::int64_t wanted = kPiecesPerThread * thread_pool().threads();
  const std::int64_t whole = samples * key_heads;
  const std::int64_t cuts = std::clamp<std::int64_t>(wanted / whole, 1, blocks);
  thread_pool().run(whole * cuts, [&](std::int64_t i) {
    const std::int64_t cut = i % cuts, head = i / cuts % key_heads, sample = i / cuts / key_heads;
    Workspace& workspace = Workspace::of_thread(block, width);
    workspace.packed.reset(keys_of(k, v, sample, head), KeyUse::kForward);
    const std::int64_t first = blocks * cut / cuts * block;
    const std::int64_t end = std::min(blocks * (cut + 1) / cuts * block, length);
    for_tiles(heads, head, shared, first, end, workspace,
              [&](const TileOfQueries& queries, std::int64_t query_head) {
                attend_rows({q, y, sample, 0}, heads, queries, query_head, workspace);
                std::copy_n(workspace.sum, queries.rows,
                            log_sum.data_ptr<float>() + sample * log_sum.stride(0) +
                                query_head * length + queries.first);
              });
  });
  return {y.view({samples, length, q.size(2) * width}), log_sum};
}

namespace {

// The operands and results of a gradient for one head of keys.
struct GradientOfHead {
  const at::Tensor &q, &y, &dy, &dq, &log_sum;
  std::int64_t sample;
  const at::Tensor &dk, &dv;  // sums in fp32
};

// Sums for the keys of a head, from `token` on.
kernels::RowSums sums_of(const at::Tensor& d, std::int64_t sample, std::int64_t head,
                         std::int64_t token) {
  return {d.data_ptr<float>() + sample * d.stride(0) + head * d.stride(2) + token * d.stride(1),
          d.stride(1)};
}

void add_gradients(const GradientOfHead& g, std::int64_t head, std::int64_t key_head,
                   AttentionTile tile, Workspace& workspace) {
  const std::int64_t padded = kernels::tile_width(tile.width);
  const float scale = scale_of(tile.width);
  HeadRows(g.q, g.sample, head).read(tile.query, tile.rows, scale, workspace.q);
  HeadRows(g.dy, g.sample, head).read(tile.query, tile.rows, 1, workspace.dy);
  HeadRows(g.y, g.sample, head).read(tile.query, tile.rows, 1, workspace.y);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float along = 0;
    for (std::int64_t i = row * padded; i < row * padded + tile.width; ++i)
      along += workspace.y[i] * workspace.dy[i];
    workspace.along[row] = along;
  }
  std::fill_n(workspace.dq, tile.rows * padded, 0.0f);
  const float* log_sum = g.log_sum.const_data_ptr<float>() + g.sample * g.log_sum.stride(0) +
                         head * g.log_sum.stride(1) + tile.query;
  for (const std::int32_t block : workspace.blocks) {
    tile.key = block * tile.block;
    kernels::attend_tile_gradient(
        tile, workspace.packed.find(block), {workspace.q, workspace.dy, log_sum, workspace.along},
        {workspace.scores, workspace.products, workspace.part}, workspace.dq,
        {sums_of(g.dk, g.sample, key_head, tile.key), sums_of(g.dv, g.sample, key_head, tile.key),
         workspace.packed.count(block)});
  }
  const HeadRows dq(g.dq, g.sample, head);
  for (std::int64_t row = 0; row < tile.rows; ++row) {
    float* from = workspace.dq + row * padded;
    for (std::int64_t i = 0; i < tile.width; ++i) from[i] *= scale;
    dq.write(tile.query + row, from);
  }
}

}  // namespace

// Gradients of keys are added up in fp32, in the order of the blocks of queries.
void HostAttentionPrimitives::attend_sparse_gradient(const at::Tensor& q, const at::Tensor& k,
                                                     const at::Tensor& v, const Attended& attended,
                                                     const at::Tensor& dy, const at::Tensor& dq,
                                                     const at::Tensor& dk, const at::Tensor& dv,
                                                     const PatternOfHeads& heads) const {
  const std::int64_t length = q.size(1), width = q.size(3), block = heads.pattern.block;
  const std::int64_t key_heads = k.size(2), shared = q.size(2) / key_heads;
  const at::Tensor y = attended.y.view(q.sizes()), gradient = dy.view(q.sizes());
  const bool in_place = dk.scalar_type() == at::kFloat;
  const auto sum_of = [&](const at::Tensor& d) {
    if (in_place) return d.zero_();
    return at::zeros(d.sizes(), d.options().dtype(at::kFloat));
  };
  const at::Tensor dk_sum = sum_of(dk), dv_sum = sum_of(dv);
  thread_pool().run(q.size(0) * key_heads, [&](std::int64_t i) {
    const std::int64_t head = i % key_heads, sample = i / key_heads;
    Workspace& workspace = Workspace::of_thread(block, width);
    workspace.packed.reset(keys_of(k, v, sample, head), KeyUse::kGradient);
    const GradientOfHead of_head{.q = q,
                                 .y = y,
                                 .dy = gradient,
                                 .dq = dq,
                                 .log_sum = attended.log_sum,
                                 .sample = sample,
                                 .dk = dk_sum,
                                 .dv = dv_sum};
    for_tiles(heads, head, shared, 0, length, workspace,
              [&](const TileOfQueries& queries, std::int64_t query_head) {
                add_gradients(of_head, query_head, head, tile_of(heads, queries, width), workspace);
              });
  });
  if (in_place) return;
  dk.copy_(dk_sum);
  dv.copy_(dv_sum);
}

at::Tensor HostAttentionPrimitives::attend_sparse_pages(const at::Tensor& q, const at::Tensor& keys,
                                                        const at::Tensor& values,
                                                        const PagedText& text,
                                                        const PatternOfHeads& heads) const {
  const std::int64_t tokens = q.size(1), width = q.size(3), block = heads.pattern.block;
  const std::int64_t key_heads = keys.size(1), shared = q.size(2) / key_heads;
  const std::int64_t end = text.position + tokens;
  const at::Tensor y = at::empty(q.sizes(), q.options());
  const std::int64_t size = kernels::bytes_of(element_of(keys));
  thread_pool().run(key_heads, [&](std::int64_t head) {
    const auto rows_of = [&](const at::Tensor& pool) {
      return kernels::RowsInPages{.data = at_element(pool, head * pool.stride(1)),
                                  .token_stride = pool.stride(2) * size,
                                  .page_stride = pool.stride(0) * size};
    };
    Workspace& workspace = Workspace::of_thread(block, width);
    workspace.packed.reset({.element = element_of(keys),
                            .keys = rows_of(keys),
                            .values = rows_of(values),
                            .pages = text.pages,
                            .page_tokens = keys.size(2),
                            .tokens = end},
                           KeyUse::kForward);
    for_tiles(heads, head, shared, text.position, end, workspace,
              [&](const TileOfQueries& queries, std::int64_t query_head) {
                attend_rows({q, y, 0, text.position}, heads, queries, query_head, workspace);
              });
  });
  return y.view({1, tokens, q.size(2) * width});
}

}  // namespace strata
