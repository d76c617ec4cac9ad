// A CSV record ends at the first line end that follows an even number of quotation marks: in valid
// RFC 4180, marks open, close or come in pairs. So the scanner only counts marks, and invalid ones
// are detected when the record is split.
#include <algorithm>
#include <cstring>

#include "strata/base/user_text.h"
#include "strata/tabular/text_file.h"

namespace strata {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;

// Finds the end of a quoted column that begins at `at` and removes its marks. Returns the position
// after the closing mark, or 0 with a problem.
std::size_t unquote(std::span<char> line, std::size_t at, std::string_view& field,
                    LineProblem& problem) {
  std::size_t out = at + 1;
  for (std::size_t i = at + 1; i < line.size(); ++i) {
    if (line[i] != '"') {
      line[out++] = line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      line[out++] = line[i++];
    } else {
      field = {line.data() + at + 1, out - at - 1};
      return i + 1;
    }
  }
  problem = {at, "a quotation mark is never closed", "a second mark before the end of the column",
             "the end of the line", "close it; inside a quoted column write a mark twice"};
  return 0;
}

bool split_delimited(std::span<char> line, char separator, bool quotes,
                     std::vector<std::string_view>& fields, LineProblem& problem) {
  std::size_t at = 0;
  for (;;) {
    if (quotes && at < line.size() && line[at] == '"') {
      std::string_view field;
      const std::size_t end = unquote(line, at, field, problem);
      if (end == 0) return false;
      if (end < line.size() && line[end] != separator) {
        problem = {end, "text after a closing quotation mark", "the next column",
                   quote(std::string_view(&line[end], 1)),
                   "inside a quoted column write a quotation mark twice"};
        return false;
      }
      fields.push_back(field);
      at = end;
    } else {
      const char* begin = line.data() + at;
      const void* found = std::memchr(begin, separator, line.size() - at);
      const std::size_t end =
          found ? static_cast<std::size_t>(static_cast<const char*>(found) - line.data())
                : line.size();
      const std::string_view field(begin, end - at);
      const std::size_t mark = quotes ? field.find('"') : std::string_view::npos;
      if (mark != std::string_view::npos) {
        problem = {at + mark, "a quotation mark inside a column that does not begin with one",
                   "marks around the whole column", quote(field),
                   "quote the column and write the marks inside twice"};
        return false;
      }
      fields.push_back(field);
      at = end;
    }
    if (at == line.size()) return true;
    ++at;  // a separator at the end is followed by an empty column
  }
}

bool is_blank(char c) { return c == ' ' || c == '\t'; }

bool is_index(std::string_view text) {
  return !text.empty() && text.size() <= 20 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

// Pairs with a column of their own are rotated to the front, so that the others are contiguous.
bool split_libsvm(std::span<char> line, const std::vector<std::string>& wanted,
                  std::vector<std::string_view>& fields, LineProblem& problem) {
  const std::string_view whole(line.data(), line.size());
  const std::size_t end = std::min(whole.find('#'), whole.size());
  fields.assign(3 + wanted.size(), {});
  char* out = nullptr;
  char* features = nullptr;
  std::size_t at = 0;
  for (bool is_first = true;; is_first = false) {
    while (at < end && is_blank(line[at])) ++at;
    if (at == end) break;
    const std::size_t begin = at;
    while (at < end && !is_blank(line[at])) ++at;
    const std::string_view token(line.data() + begin, at - begin);
    if (is_first) {
      fields[0] = token;
      features = out = line.data() + at;
      continue;
    }
    const std::size_t colon = token.find(':');
    const std::string index(token.substr(0, std::min(colon, token.size())));  // bytes will move
    if (colon == std::string_view::npos || (!is_index(index) && index != "qid")) {
      problem = {begin, "this is no pair of index and value", "index:value", quote(token),
                 "write it like 17:0.5"};
      return false;
    }
    const auto column = std::ranges::find(wanted, index);
    if (index == "qid" || column != wanted.end()) {
      std::rotate(features, line.data() + begin, line.data() + at);
      const auto place = index == "qid" ? 1 : 3 + (column - wanted.begin());
      fields[static_cast<std::size_t>(place)] = {features + colon + 1, token.size() - colon - 1};
      features += token.size();
      out += token.size();
      continue;
    }
    if (out != features) *out++ = ' ';  // there is a blank before every token
    std::memmove(out, token.data(), token.size());
    out += token.size();
  }
  if (features == nullptr) {
    problem = {0, "a line without a label", "label index:value ...", "nothing", "remove the line"};
    return false;
  }
  fields[2] = {features, static_cast<std::size_t>(out - features)};
  return true;
}

}  // namespace

bool LineFormat::split(std::span<char> line, std::vector<std::string_view>& fields,
                       LineProblem& problem) const {
  fields.clear();
  if (kind == SampleFormat::kLibsvm) return split_libsvm(line, wanted, fields, problem);
  return split_delimited(line, quotes() ? ',' : '\t', quotes(), fields, problem);
}

LineScanner::LineScanner(const RandomAccessFile& file, bool quotes, const FileUse& use)
    : file_(file), use_(use), quotes_(quotes) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  fill();
  if (std::string_view(buffer_.data(), buffer_.size()).starts_with(kByteOrderMark))
    next_ = kByteOrderMark.size();
}

// Keeps the bytes from next_ on and appends a block. Returns false at the end of the file.
bool LineScanner::fill() {
  const std::uint64_t end = first_ + buffer_.size();
  if (end == file_.size()) return false;
  buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(next_));
  first_ += next_;
  next_ = 0;
  if (buffer_.size() > kLongestLine + kBlockBytes) refuse_length("more");
  const std::size_t kept = buffer_.size();
  buffer_.resize(kept + std::min<std::uint64_t>(kBlockBytes, file_.size() - end));
  file_.read(end, std::as_writable_bytes(std::span(buffer_).subspan(kept)));
  return true;
}

void LineScanner::refuse_length(const std::string& got) const {
  const FileUse use{.operation = use_.operation,
                    .fix = quotes_ ? "shorten the line, or close its quotation mark"
                                   : "shorten the line, or set data.format to what the file is"};
  use.refuse(file_.path() + ":" + std::to_string(next_number_), "the line is too long",
             "at most " + std::to_string(kLongestLine) + " bytes", got);
}

bool LineScanner::next() {
  for (;;) {
    std::size_t at = next_;
    std::int64_t lines = 0;
    bool inside = false;  // quotes
    const char* found = nullptr;
    for (;;) {
      found = static_cast<const char*>(std::memchr(buffer_.data() + at, '\n', buffer_.size() - at));
      if (found != nullptr) {
        const char* from = buffer_.data() + at;
        if (quotes_ && std::count(from, found, '"') % 2 != 0) inside = !inside;
        ++lines;
        at = static_cast<std::size_t>(found - buffer_.data()) + 1;
        if (!inside) break;
        continue;
      }
      const std::size_t done = at - next_;
      if (!fill()) break;
      at = next_ + done;
    }
    const std::size_t end = found ? at - 1 : buffer_.size();
    if (!found && next_ == end) return false;
    begin_ = next_;
    length_ = end - begin_;
    if (length_ > 0 && buffer_[begin_ + length_ - 1] == '\r') --length_;
    if (length_ > kLongestLine) refuse_length(std::to_string(length_));
    number_ = next_number_;
    next_number_ += std::max<std::int64_t>(lines, 1);
    next_ = found ? at : end;
    if (length_ > 0) return true;
  }
}

}  // namespace strata
