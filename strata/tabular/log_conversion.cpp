#include "strata/tabular/log_conversion.h"

#include <cstdio>

#include "strata/base/durable_file.h"
#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/tabular/record_file.h"
#include "strata/tabular/text_file.h"

namespace strata {
namespace {

constexpr std::size_t kPendingBytes = std::size_t{1} << 20;

std::string in_csv(std::string_view field) {
  if (field.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(field);
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

// Lines of text, CSV or TSV.
class LineWriter {
 public:
  explicit LineWriter(const std::string& path)
      : path_(path), is_csv_(path.ends_with(".csv")), file_(path + ".partial") {}
  ~LineWriter() {
    if (!finished_) std::remove((path_ + ".partial").c_str());
  }
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // `place` is called only for an error, because finding a line requires reading all earlier ones.
  template <typename Fields, typename Place>
  void add(const Fields& fields, const Place& place) {
    const std::size_t begin = pending_.size();
    bool first = true;
    for (const std::string_view field : fields) {
      if (!first) pending_ += is_csv_ ? ',' : '\t';
      first = false;
      if (!is_csv_) require_plain(field, place);
      pending_ += is_csv_ ? in_csv(field) : std::string(field);
    }
    // an empty line would not be a sample
    if (pending_.size() == begin && is_csv_) pending_ += "\"\"";
    const std::size_t bytes = pending_.size() - begin;
    if (bytes > kLongestLine) refuse_length(bytes, place());
    pending_ += '\n';
    if (pending_.size() < kPendingBytes) return;
    file_.write(pending_);
    pending_.clear();
  }

  void finish() {
    file_.write(pending_);
    file_.close();
    rename_durably(path_ + ".partial", path_);
    finished_ = true;
  }

 private:
  // The written line could not be read back.
  [[noreturn]] void refuse_length(std::size_t bytes, const std::string& where) const {
    throw UserError({.operation = "tabular.write",
                     .where = where,
                     .what = "the line of this sample becomes too long",
                     .expected = "at most " + std::to_string(kLongestLine) + " bytes",
                     .got = std::to_string(bytes),
                     .fix = "write a .strata file"});
  }

  template <typename Place>
  void require_plain(std::string_view field, const Place& place) const {
    if (field.find_first_of("\t\n") == std::string_view::npos && !field.ends_with('\r')) return;
    throw UserError({.operation = "tabular.write",
                     .where = place(),
                     .what = "TSV cannot hold a text with tabs or line ends",
                     .expected = "none of them",
                     .got = quote(field),
                     .fix = "write a .csv or .strata file"});
  }

  std::string path_;
  bool is_csv_;
  DurableFile file_;
  std::string pending_;
  bool finished_ = false;
};

template <typename Writer>
void copy(const SampleFile& from, std::int64_t first, std::int64_t count, Writer writer) {
  SampleText text;
  for (std::int64_t sample = first; sample < first + count; ++sample) {
    from.read(sample, text);
    writer(sample, text.fields);
  }
}

}  // namespace

void write_samples(const SampleFile& from, std::int64_t first, std::int64_t count,
                   const std::string& path) {
  STRATA_CHECK(first >= 0 && count > 0 && first + count <= from.samples(), "tabular.write");
  if (path.ends_with(".strata")) {
    RecordWriter writer(path, from.columns());
    copy(from, first, count, [&](std::int64_t, const auto& fields) { writer.add(fields); });
    writer.finish();
  } else if (path.ends_with(".csv") || path.ends_with(".tsv")) {
    LineWriter writer(path);
    writer.add(from.columns(), [] { return std::string("the names of the columns"); });
    copy(from, first, count, [&](std::int64_t sample, const auto& fields) {
      writer.add(fields, [&] { return from.place(sample); });
    });
    writer.finish();
  } else {
    throw UserError({.operation = "tabular.write",
                     .where = path,
                     .what = "the name does not say what to write",
                     .expected = "a name that ends with .strata, .csv or .tsv",
                     .got = quote(path.substr(path.rfind('/') + 1)),
                     .fix = "name it clicks.strata"});
  }
}

}  // namespace strata
