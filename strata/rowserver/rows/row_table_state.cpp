#include "strata/rowserver/rows/row_table_state.h"

#include <utility>

#include "strata/base/errors.h"
#include "strata/rowserver/codec/byte_codec.h"

namespace strata {
namespace {

constexpr std::uint8_t kRow = 0, kCandidate = 1;

class RowTableState : public ShardState {
 public:
  RowTableState(const std::vector<FeatureSpec>& features, const RowTableOptions& options)
      : table_(features, options) {}

  RowStore& rows() override { return table_; }

  void write(const std::function<void(const StateRecord&)>& sink) override {
    ByteWriter bytes;
    table_.for_each_row([&](const RowRecord& row) {
      bytes.out().clear();
      bytes.varint(static_cast<std::uint64_t>(row.tier));
      bytes.varint(static_cast<std::uint64_t>(row.step));
      bytes.varint(row.hits);
      bytes.varint(row.recent);
      bytes.bytes(row.payload);
      sink({.feature = row.feature,
            .kind = row.candidate ? kCandidate : kRow,
            .id = row.id,
            .bytes = bytes.out()});
    });
    const std::string rest = table_.bookkeeping();
    sink({.feature = 0, .kind = kOfShard, .id = 0, .bytes = std::as_bytes(std::span(rest))});
  }

  void put(const StateRecord& record) override {
    if (record.kind >= kOfShard) {
      const auto* text = reinterpret_cast<const char*>(record.bytes.data());
      rest_.emplace_back(text, record.bytes.size());
      return;
    }
    ByteReader from(record.bytes, "a row of feature " + std::to_string(record.feature));
    const std::uint64_t tier = from.varint();
    if (tier > static_cast<std::uint64_t>(RowTier::kDisk)) from.refuse("there is no such tier");
    const std::int64_t step = from.number();
    const std::uint64_t hits = from.varint(), recent = from.varint();
    table_.insert_row({.feature = record.feature,
                       .id = record.id,
                       .tier = static_cast<RowTier>(tier),
                       .candidate = record.kind == kCandidate,
                       .step = step,
                       .hits = static_cast<std::uint32_t>(hits),
                       .recent = static_cast<std::uint8_t>(recent),
                       .payload = from.bytes(from.left())});
  }

  void finish(std::int64_t, bool whole) override {
    for (const std::string& text : rest_)
      table_.restore_bookkeeping(
          text, whole ? RowTable::Bookkeeping::kWhole : RowTable::Bookkeeping::kPart);
    rest_.clear();
  }

  std::vector<FeatureCounts> counts() const override { return table_.last_counts(); }

  RowDescription describe(int feature, std::uint64_t id) override {
    const FeatureSpec& spec = table_.features()[static_cast<std::size_t>(feature)];
    RowDescription row{.feature = spec.name,
                       .id = id,
                       .value = std::vector<float>(static_cast<std::size_t>(spec.width))};
    const std::uint64_t ids[] = {id};
    table_.read(feature, ids, row.value);
    const std::optional<RowInfo> info = table_.info(feature, id);
    if (!info) return row;
    row.there = true;
    row.tier = info->tier;
    row.candidate = info->candidate;
    row.last_update = info->step;
    row.hits = info->hits;
    row.state = info->states;
    return row;
  }

  HotRows hottest(int feature, int count) override { return table_.hottest(feature, count); }

  std::int64_t bytes() override { return table_.bytes(); }

 private:
  RowTable table_;
  std::vector<std::string> rest_;
};

}  // namespace

std::unique_ptr<ShardState> make_row_table_state(const std::vector<FeatureSpec>& features,
                                                 const RowTableOptions& options) {
  return std::make_unique<RowTableState>(features, options);
}

}  // namespace strata
