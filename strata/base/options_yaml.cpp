// A recipe is parsed twice; the first pass only counts. yaml-cpp's LoadAll never returns from a
// text such as ",": its parser consumes nothing and still reports one empty document after another.
// No nodes are built before the number of documents and the depth are known.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "strata/base/errors.h"
#include "strata/base/options.h"
#include "strata/base/user_text.h"
#include "strata/base/utf8.h"
#include "strata/base/yaml_text.h"

namespace strata {
namespace {

// yaml-cpp counts from 0 and gives -1 to nodes that are not written, such as an empty value.
std::string place(const std::string& file, const YAML::Mark& mark) {
  if (mark.is_null()) return file;
  return file + ":" + std::to_string(mark.line + 1) + ":" + std::to_string(mark.column + 1);
}

std::string in_words(const YAML::Node& node) {
  if (node.IsNull()) return "nothing";
  if (node.IsScalar()) return quote(node.Scalar());
  return node.IsMap() ? "a section" : "a list";
}

constexpr std::size_t kLongestRecipe = std::size_t{1} << 20;  // bytes
constexpr int kDeepest = 16;
constexpr std::size_t kLongestList = 4096;  // elements: the fields of each are described

// Records where documents begin and how deeply their lists and sections are nested.
class DocumentCounter final : public YAML::EventHandler {
 public:
  std::vector<YAML::Mark> documents;
  YAML::Mark too_deep = YAML::Mark::null_mark();

  void OnDocumentStart(const YAML::Mark& mark) override { documents.push_back(mark); }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {
    enter(mark);
  }
  void OnMapEnd() override { --depth_; }

 private:
  void enter(const YAML::Mark& mark) {
    if (++depth_ == kDeepest + 1 && too_deep.is_null()) too_deep = mark;
  }
  int depth_ = 0;
};

}  // namespace

/// Walks one recipe and passes every value, with its place, to the set.
class OptionSet::YamlReader {
 public:
  /// `shorthand`: the field that a plain value sets if a list element is expected.
  YamlReader(OptionSet& set, std::string file, std::string shorthand = "")
      : set_(set), file_(std::move(file)), shorthand_(std::move(shorthand)) {}

  void read(const std::string& text) {
    if (text.size() > kLongestRecipe) {
      refuse(YAML::Mark::null_mark(), "the recipe is too long",
             "at most " + std::to_string(kLongestRecipe) + " bytes", std::to_string(text.size()),
             "name a recipe, such as one of recipes/");
    }
    const YAML::Node document = parse(text);
    if (document.IsNull()) return;
    if (!document.IsMap()) {
      refuse(document.Mark(), "a recipe is made of sections", "the sections " + set_.members(""),
             in_words(document), "write it like `train: {steps: 10}`");
    }
    read_section(document, "");
  }

  /// Reads the value of `field` if it is a list or a section of another component.
  void read_field(Field& field, const YAML::Mark& mark, const YAML::Node& value) {
    if (std::holds_alternative<OptionList>(field.target)) {
      read_list(field, mark, value);
    } else {
      if (!value.IsMap()) {
        refuse(mark, "'" + field.path + "' is a section and takes no value of its own",
               "its fields", in_words(value), "write it like `{name: value}`");
      }
      YamlSection& kept = *std::get<YamlSection*>(field.target);
      kept.node_ = value.size() == 0 ? nullptr : std::make_shared<const YAML::Node>(value);
      kept.file_ = file_;
      kept.where_ = place(file_, mark);
    }
    field.where = place(file_, mark);
  }

  void read_section(const YAML::Node& section, const std::string& prefix) {
    for (const auto& entry : section) {
      if (!entry.first.IsScalar()) {
        refuse(entry.first.Mark(), "a name must be plain text", "", in_words(entry.first),
               "write it like `name: value`");
      }
      const std::string path = prefix + entry.first.Scalar();
      refuse_repetition(entry.first.Mark(), path);
      read_entry(entry.first.Mark(), path, entry.second);
    }
  }

  YAML::Node parse(const std::string& text) {
    require_utf8(text);
    try {
      check_documents(text);
      return YAML::Load(text);
    } catch (const YAML::Exception& error) {
      refuse(error.mark, "malformed YAML: " + error.msg, "", "",
             "check indentation, quotes and brackets up to this place");
    }
  }

 private:
  // The parser would replace each byte that is not UTF-8 by another character.
  void require_utf8(const std::string& text) const {
    const std::size_t good = utf8_bytes(text);
    if (good == text.size()) return;
    const std::string_view before(text.data(), good);
    const std::size_t line_begin = before.rfind('\n') + 1;  // 0 in the first line
    const std::size_t line_end = std::min(text.find('\n', good), text.size());
    std::size_t column = 1;
    for (std::size_t at = line_begin; at < good; at += character_bytes(before.substr(at))) ++column;
    throw UserError({.operation = "base.options",
                     .where = file_ + ":" +
                              std::to_string(1 + std::count(before.begin(), before.end(), '\n')) +
                              ":" + std::to_string(column),
                     .what = "the text is not UTF-8",
                     .expected = "UTF-8",
                     .got = quote(text.substr(line_begin, line_end - line_begin)),
                     .fix = "convert it, such as with `iconv -f latin1 -t utf8`"});
  }

  void check_documents(const std::string& text) {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    DocumentCounter counter;
    while (counter.documents.size() < 2 && parser.HandleNextDocument(counter)) {
    }
    if (!counter.too_deep.is_null()) {
      refuse(counter.too_deep, "lists and sections are nested too deeply",
             "at most " + std::to_string(kDeepest) + " levels", "more",
             "write a recipe of sections and fields");
    }
    if (counter.documents.size() < 2) return;
    const YAML::Mark &first = counter.documents[0], &second = counter.documents[1];
    if (first.pos == second.pos) {
      refuse(second, "malformed YAML: a character that begins nothing", "",
             quote(text.substr(std::min<std::size_t>(second.pos, text.size()), 1)), "remove it");
    }
    refuse(second, "a recipe is one YAML document", "one document", "more",
           "remove the lines that read '---'");
  }

  void read_entry(const YAML::Mark& key, const std::string& path, const YAML::Node& value) {
    // An empty value has no visible place, so the key's place is reported.
    const YAML::Mark mark = value.IsNull() ? key : value.Mark();
    if (set_.is_section(path)) {
      if (value.IsMap()) {
        read_section(value, path + ".");
      } else if (value.IsScalar() && value.Scalar() == "auto" && set_.lookup(path + ".auto")) {
        set_.assign(path + ".auto", "true", place(file_, mark));  // `mesh: auto`
      } else if (value.IsScalar() && !shorthand_.empty() && set_.lookup(path + "." + shorthand_)) {
        set_.assign(path + "." + shorthand_, value.Scalar(), place(file_, mark));
      } else if (!value.IsNull()) {
        set_.refuse_section(path, in_words(value), place(file_, mark));
      }
      return;
    }
    Field* field = set_.lookup(path);
    if (!field) {
      const std::string text = value.IsScalar() ? value.Scalar() : in_words(value);
      if (set_.accept_retired(path, text, place(file_, mark))) return;
      set_.refuse_unknown(path, value.IsMap(), place(file_, key));
    }
    if (std::holds_alternative<OptionList>(field->target) ||
        std::holds_alternative<YamlSection*>(field->target)) {
      return read_field(*field, mark, value);
    }
    if (!value.IsScalar()) {
      refuse(mark, "'" + path + "' takes one value", "one value", in_words(value),
             "write it like `" + path.substr(path.rfind('.') + 1) + ": " +
                 write_value(field->target) + "`");
    }
    set_.assign(path, value.Scalar(), place(file_, mark));
  }

  void read_list(Field& field, const YAML::Mark& mark, const YAML::Node& value) {
    const auto& list = std::get<OptionList>(field.target);
    OptionSet fresh;
    list.describe_new(fresh, field.path);
    const bool of_texts = !fresh.is_section(field.path);
    const bool one_text = of_texts && value.IsScalar();
    if (!value.IsSequence() && !one_text) {
      refuse(mark, "'" + field.path + "' takes a list",
             of_texts ? "texts" : "elements with the fields " + fresh.members(field.path),
             in_words(value),
             of_texts ? "write it like `[one, other]`" : "write it like `[{...}, {...}]`");
    }
    const std::size_t count = one_text ? 1 : value.size();
    if (count > kLongestList) {
      refuse(mark, "'" + field.path + "' is too long",
             "at most " + std::to_string(kLongestList) + " elements", std::to_string(count),
             "remove elements");
    }
    field.elements.clear();
    list.resize(0);
    list.resize(count);
    describe_elements(field);
    for (std::size_t i = 0; i < count; ++i) {
      const std::string path = field.path + "[" + std::to_string(i) + "]";
      const YAML::Node element = one_text ? value : value[i];
      if (element.IsNull())
        refuse(mark, "'" + path + "' is empty", "", "nothing", "remove it, or the comma too many");
      YamlReader(field.elements[i], file_, list.shorthand).read_entry(mark, path, element);
    }
  }

  void refuse_repetition(const YAML::Mark& mark, const std::string& path) {
    const auto [first, is_new] = seen_.emplace(path, place(file_, mark));
    if (is_new) return;
    refuse(mark, quote(path) + " is given twice", "", "first at " + first->second,
           "remove one of the two");
  }

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string what, std::string expected,
                           std::string got, std::string fix) const {
    throw UserError({.operation = "base.options",
                     .where = place(file_, mark),
                     .what = std::move(what),
                     .expected = std::move(expected),
                     .got = std::move(got),
                     .fix = std::move(fix)});
  }

  OptionSet& set_;
  std::string file_;
  std::string shorthand_;
  std::map<std::string, std::string> seen_;
};

void OptionSet::load_yaml(const std::string& text, const std::string& file) {
  YamlReader(*this, file).read(text);
}

void OptionSet::load_section(const YamlSection& kept, const std::string& section) {
  if (!kept.is_set()) return;
  YamlReader(*this, kept.file_).read_section(*kept.node_, section.empty() ? "" : section + ".");
}

// For `--set`: the value alone is YAML.
void OptionSet::assign_yaml(Field& field, const std::string& text, const std::string& where) {
  YamlReader reader(*this, where);
  reader.read_field(field, YAML::Mark::null_mark(), reader.parse(text));
}

YAML::Node OptionSet::write_node(const Target& target) {
  if (const auto* kept = std::get_if<YamlSection*>(&target))
    return (*kept)->is_set() ? YAML::Clone(*(*kept)->node_) : YAML::Load("{}");
  const auto* list = std::get_if<OptionList>(&target);
  if (list == nullptr) return YAML::Node(write_value(target));
  YAML::Node node(YAML::NodeType::Sequence);
  for (std::size_t i = 0; i < list->size(); ++i) {
    OptionSet element;
    list->describe(element, "element", i);
    const bool plain = element.fields_.size() == 1 && element.fields_[0].path == "element";
    node.push_back(plain ? write_node(element.fields_[0].target) : element.tree("element"));
  }
  return node;
}

std::string OptionSet::write_yaml(const Target& target) { return in_one_line(write_node(target)); }

std::string YamlSection::text() const { return node_ ? in_one_line(*node_) : "{}"; }

YAML::Node OptionSet::tree(const std::string& section) const {
  YAML::Node root(YAML::NodeType::Map);
  for (const Field& field : fields_) {
    YAML::Node node = root;
    std::istringstream names(field.path.substr(section.empty() ? 0 : section.size() + 1));
    for (std::string name; std::getline(names, name, '.');) node.reset(node[name]);
    node = write_node(field.target);
  }
  return root;
}

std::string OptionSet::to_yaml() const {
  YAML::Emitter emitter;
  emitter << tree("");
  return std::string(emitter.c_str()) + "\n";
}

}  // namespace strata
