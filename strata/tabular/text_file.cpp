#include "strata/tabular/text_file.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "strata/base/errors.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/tabular/sample_check.h"
#include "strata/tabular/unpacked_log.h"

namespace strata {
namespace {

const FileUse kTextUse{.operation = "tabular.open", .fix = "set data.train to a file of samples"};

[[noreturn]] void refuse_line(const std::string& place, const LineProblem& problem) {
  throw UserError({.operation = "tabular.read",
                   .where = place + ":" + std::to_string(problem.byte + 1),
                   .what = problem.what,
                   .expected = problem.expected,
                   .got = problem.got,
                   .fix = problem.fix});
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::vector<std::string> criteo_columns() {
  std::vector<std::string> names = {"label"};
  for (int i = 1; i <= 13; ++i) names.push_back("I" + std::to_string(i));
  for (int i = 1; i <= 26; ++i) names.push_back("C" + std::to_string(i));
  return names;
}

// The samples of recipes/adult.yaml are not part of the repository.
FileUse use_of(const std::string& path) {
  FileUse use = kTextUse;
  if (path.starts_with("data/adult/")) use.fix = "run `make adult`, which fetches it";
  return use;
}

class TextFile final : public SampleFile {
 public:
  TextFile(const std::string& path, SampleFormat format, const TabularOptions& options,
           SampleValues values)
      : file_(open_log(path, use_of(path))), format_{.kind = format} {
    if (format == SampleFormat::kLibsvm) want_indices(options);
    LineScanner lines(*file_, format_.quotes(), kTextUse);
    const bool delimited = format == SampleFormat::kCsv || format == SampleFormat::kTsv;
    if (format == SampleFormat::kCriteo) columns_ = criteo_columns();
    if (format == SampleFormat::kCriteo) counted_by_ = "the format has";
    if (delimited) columns_ = options.columns;
    if (!columns_.empty() && delimited) counted_by_ = "data.columns names";
    if (delimited && options.header) read_header(lines);
    check_names();
    index(lines, options, values);
  }

  std::int64_t samples() const override { return static_cast<std::int64_t>(begins_.size()); }
  const std::vector<std::string>& columns() const override { return columns_; }

  void read(std::int64_t sample, SampleText& text) const override {
    const auto i = static_cast<std::size_t>(sample);
    STRATA_CHECK(i < begins_.size(), "tabular.read");
    text.bytes.resize(lengths_[i]);
    file_->read(begins_[i], std::as_writable_bytes(std::span(text.bytes)));
    LineProblem problem;
    if (!format_.split(text.bytes, text.fields, problem)) refuse_line(place(sample), problem);
    if (text.fields.size() != columns_.size()) refuse_count(place(sample), text.fields.size());
  }

  // Counts lines again; called once, for an error.
  std::string place(std::int64_t sample) const override {
    std::int64_t line = 1;
    std::vector<char> block(std::size_t{1} << 20);
    const std::uint64_t end = begins_[static_cast<std::size_t>(sample)];
    for (std::uint64_t at = 0; at < end;) {
      const std::size_t bytes = std::min<std::uint64_t>(block.size(), end - at);
      file_->read(at, std::as_writable_bytes(std::span(block).first(bytes)));
      line += std::count(block.begin(), block.begin() + static_cast<std::ptrdiff_t>(bytes), '\n');
      at += bytes;
    }
    return place_of_line(line);
  }

 private:
  std::string path() const override { return file_->path(); }
  std::string place_of_line(std::int64_t line) const {
    return file_->path() + ":" + std::to_string(line);
  }

  void want_indices(const TabularOptions& options) {
    columns_ = {"label", "qid", "features"};
    for (const NumericOptions& number : options.numeric) {
      const bool digits =
          std::ranges::all_of(number.name, [](char c) { return c >= '0' && c <= '9'; });
      if (!digits || number.name.empty()) continue;
      format_.wanted.push_back(number.name);
      columns_.push_back(number.name);
    }
  }

  void read_header(LineScanner& lines) {
    if (!lines.next()) return;
    std::vector<std::string_view> names;
    LineProblem problem;
    if (!format_.split(lines.line(), names, problem))
      refuse_line(place_of_line(lines.number()), problem);
    if (!columns_.empty()) return;
    for (const std::string_view name : names) {
      require_utf8(name, lines);
      columns_.emplace_back(trimmed(name));
    }
  }

  // Column names are copied to recipes, checkpoints and reports, which are UTF-8; other texts are
  // bytes.
  void require_utf8(std::string_view name, LineScanner& lines) const {
    const std::size_t good = utf8_bytes(name);
    if (good == name.size()) return;
    refuse_line(place_of_line(lines.number()),
                {.byte = static_cast<std::size_t>(name.data() + good - lines.line().data()),
                 .what = "the name of a column is not UTF-8",
                 .expected = "UTF-8",
                 .got = quote(name),
                 .fix = "convert the file, such as with `iconv -f latin1 -t utf8`, or set "
                        "data.columns to names for all columns"});
  }

  void check_names() const {
    std::set<std::string> names;
    for (const std::string& name : columns_) {
      if (names.insert(name).second) continue;
      throw UserError({.operation = "tabular.open",
                       .where = path(),
                       .what = "two columns have one name",
                       .expected = "names that differ",
                       .got = quote(name),
                       .fix = "set data.columns to names for all columns"});
    }
  }

  // A missing column is detected before all lines are read.
  void index(LineScanner& lines, const TabularOptions& options, SampleValues values) {
    std::vector<std::string_view> fields;
    LineProblem problem;
    std::optional<SampleCheck> check;
    while (lines.next()) {
      if (!format_.split(lines.line(), fields, problem))
        refuse_line(place_of_line(lines.number()), problem);
      if (columns_.empty()) number_columns(fields.size());
      if (fields.size() != columns_.size())
        refuse_count(place_of_line(lines.number()), fields.size());
      begins_.push_back(lines.offset());
      lengths_.push_back(static_cast<std::uint32_t>(lines.line().size()));
      if (values == SampleValues::kUnchecked) continue;
      if (!check) check.emplace(*this, options);
      check->check(samples() - 1, fields);
    }
    if (begins_.empty())
      kTextUse.refuse(path(), "the file has no samples", "at least one line of them", "none");
  }

  void number_columns(std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) columns_.push_back(std::to_string(i));
  }

  [[noreturn]] void refuse_count(const std::string& place, std::size_t got) const {
    throw UserError({.operation = "tabular.read",
                     .where = place,
                     .what = "the line has another number of columns",
                     .expected = std::to_string(columns_.size()) + ", as " + counted_by_,
                     .got = std::to_string(got),
                     .fix = "correct or remove the line, or set data.format"});
  }

  std::shared_ptr<const RandomAccessFile> file_;
  LineFormat format_;
  std::vector<std::string> columns_;
  std::string counted_by_ = "the first has";
  std::vector<std::uint64_t> begins_;
  std::vector<std::uint32_t> lengths_;
};

bool ends_with_any(const std::string& path, std::initializer_list<const char*> endings) {
  return std::ranges::any_of(endings, [&](const char* ending) { return path.ends_with(ending); });
}

void refuse_other_packers(const std::string& path) {
  constexpr std::pair<const char*, const char*> kPackers[] = {{".zst", "zstd -d"},
                                                              {".bz2", "bunzip2"},
                                                              {".xz", "unxz"},
                                                              {".lz4", "lz4 -d"},
                                                              {".zip", "unzip"}};
  for (const auto& [ending, program] : kPackers) {
    if (!path.ends_with(ending)) continue;
    throw UserError({.operation = "tabular.open",
                     .where = path,
                     .what = "a log that this program has packed cannot be read",
                     .expected = "a log as it is, or one that gzip has packed",
                     .got = quote(path.substr(path.rfind('/') + 1)),
                     .fix = "unpack it: " + std::string(program) + " " + path});
  }
}

}  // namespace

std::shared_ptr<const SampleFile> open_text_samples(const std::string& path, SampleFormat format,
                                                    const TabularOptions& options,
                                                    SampleValues values) {
  return std::make_shared<const TextFile>(path, format, options, values);
}

SampleFormat format_of(const std::string& name, SampleFormat requested) {
  refuse_other_packers(name);
  if (requested != SampleFormat::kAuto) return requested;
  const std::string path = unpacked_name(name);
  if (path != name && path.ends_with(".strata"))
    throw UserError({.operation = "tabular.open",
                     .where = name,
                     .what = "records that gzip has packed cannot be read",
                     .expected = "records as strata convert writes them",
                     .got = quote(name.substr(name.rfind('/') + 1)),
                     .fix = "unpack them: gunzip " + name});
  if (ends_with_any(path, {".csv"})) return SampleFormat::kCsv;
  if (ends_with_any(path, {".tsv"})) return SampleFormat::kTsv;
  if (ends_with_any(path, {".libsvm", ".svm", ".svmlight"})) return SampleFormat::kLibsvm;
  if (ends_with_any(path, {".strata"})) return SampleFormat::kRecords;
  throw UserError({.operation = "tabular.open",
                   .where = name,
                   .what = "the name does not say what the file is",
                   .expected =
                       "a name that ends with .csv, .tsv, .libsvm or .strata, the first three "
                       "optionally followed by .gz",
                   .got = quote(name.substr(name.rfind('/') + 1)),
                   .fix = "set data.format to csv, tsv, criteo, libsvm or records"});
}

int SampleFile::column(const std::string& name) const {
  const auto found = std::ranges::find(columns(), name);
  if (found != columns().end()) return static_cast<int>(found - columns().begin());
  std::string all;
  for (const std::string& one : columns()) all += (all.empty() ? "" : ", ") + one;
  const std::string nearest = nearest_name(name, columns());
  throw UserError({.operation = "tabular.open",
                   .where = path(),
                   .what = "there is no column " + quote(name),
                   .expected = excerpt(all),
                   .got = quote(name),
                   .fix = nearest.empty() ? "name one of its columns"
                                          : "did you mean '" + excerpt(nearest) + "'?"});
}

}  // namespace strata
