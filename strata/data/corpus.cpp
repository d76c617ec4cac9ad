#include "strata/data/corpus.h"

#include <algorithm>
#include <string>

#include "strata/base/errors.h"

namespace strata {
namespace {

// The tokenizer of a Hugging Face folder or file; null: the file's own bytes or numbers are the
// tokens.
std::shared_ptr<const Tokenizer> named_tokenizer(const std::string& name, std::int64_t vocabulary) {
  if (tokenizer_kind(name) != TokenizerKind::kFile) return nullptr;
  auto tokenizer = make_tokenizer(name);
  if (tokenizer->vocabulary() <= vocabulary) return tokenizer;
  throw UserError({.operation = "data.open",
                   .where = name,
                   .what = "the tokenizer has more tokens than the model",
                   .expected = "at most " + std::to_string(vocabulary) + ", the model's vocabulary",
                   .got = std::to_string(tokenizer->vocabulary()),
                   .fix = "set model.vocab=" + std::to_string(tokenizer->vocabulary())});
}

// The tokenizer converts a text to tokens; a token file must fit it.
TokenFile open_tokens(const std::string& path, const std::string& name,
                      const Tokenizer* tokenizer) {
  TokenFile file = TokenFile::open(path);
  if (tokenizer != nullptr && file.is_text()) return tokenize_file(path, *tokenizer);
  const std::int64_t vocabulary = tokenizer != nullptr ? tokenizer->vocabulary() : 256;
  const bool none = tokenizer_kind(name) == TokenizerKind::kNone;
  if (none ? !file.is_text() : file.vocabulary() == vocabulary) return file;
  throw UserError(
      {.operation = "data.open",
       .where = path,
       .what = "the tokenizer does not fit the file",
       .expected = none ? "a token file" : name + ": a vocabulary of " + std::to_string(vocabulary),
       .got = file.is_text() ? "text" : "a vocabulary of " + std::to_string(file.vocabulary()),
       .fix = none ? "set data.tokenizer=bytes" : "set data.tokenizer=none"});
}

Windows all_windows(const std::string& path, const std::string& name, const Tokenizer* tokenizer,
                    std::int64_t context, std::int64_t vocabulary) {
  const auto file = std::make_shared<const TokenFile>(open_tokens(path, name, tokenizer));
  file->check_vocabulary(vocabulary);
  const std::int64_t count = (file->size() - 1) / context;
  if (count < 1) {
    throw UserError(
        {.operation = "data.open",
         .where = path,
         .what = "the file is shorter than one window",
         .expected = std::to_string(context + 1) + " tokens: the context and one",
         .got = std::to_string(file->size()) + " tokens",
         .fix = "set model.context=" + std::to_string(std::max<std::int64_t>(file->size() - 1, 1)) +
                " or less, or take a longer text"});
  }
  return {.file = file, .context = context, .first = 0, .count = count};
}

}  // namespace

void Windows::read(std::int64_t index, std::span<std::int64_t> inputs,
                   std::span<std::int64_t> targets) const {
  STRATA_CHECK(index >= 0 && index < count, "data.read");
  const std::int64_t begin = (first + index) * context;
  file->read(begin, inputs);
  file->read(begin + 1, targets);
}

Corpus open_corpus(const DataOptions& options, std::int64_t context, std::int64_t vocabulary) {
  STRATA_CHECK(context > 0 && vocabulary > 0, "data.open");
  if (options.train.empty()) {
    throw UserError({.operation = "data.open",
                     .where = "data.train",
                     .what = "no file to train on is named",
                     .expected = "the path of a text file or a token file",
                     .got = "nothing",
                     .fix = "set data.train=PATH"});
  }
  const auto tokenizer = named_tokenizer(options.tokenizer, vocabulary);
  const auto windows_of = [&](const std::string& path) {
    return all_windows(path, options.tokenizer, tokenizer.get(), context, vocabulary);
  };
  Corpus corpus{.train = windows_of(options.train), .validation = {}};
  if (!options.validation.empty()) {
    corpus.validation = windows_of(options.validation);
    return corpus;
  }
  if (options.validation_fraction == 0) return corpus;
  const std::int64_t count = corpus.train.count;
  if (count < 2) {
    throw UserError({.operation = "data.open",
                     .where = options.train,
                     .what = "one window cannot be split into training and validation",
                     .expected = "at least " + std::to_string(2 * context + 1) + " tokens",
                     .got = std::to_string(corpus.train.file->size()) + " tokens",
                     .fix = "set data.validation_fraction=0 or take a longer text"});
  }
  const auto requested =
      static_cast<std::int64_t>(options.validation_fraction * static_cast<double>(count));
  const std::int64_t held_out = std::clamp<std::int64_t>(requested, 1, count - 1);
  corpus.train.count = count - held_out;
  corpus.validation = corpus.train;
  corpus.validation.first = count - held_out;
  corpus.validation.count = held_out;
  return corpus;
}

void describe(OptionSet& set, const std::string& prefix, DataOptions& options) {
  set.add(prefix + ".train", &options.train,
          {.help = "File to train on: any text (its bytes are the tokens) or a token file."});
  set.add(prefix + ".tokenizer", &options.tokenizer,
          {.help = "How text becomes tokens: bytes, or a tokenizer.json, the Hugging Face folder "
                   "that has it or a GGUF file; none for a token file with a vocabulary of its "
                   "own."});
  set.add(prefix + ".validation", &options.validation,
          {.help = "File to validate on; empty: the end of the training file."});
  set.add(prefix + ".validation_fraction", &options.validation_fraction,
          {.help = "Fraction of the training file kept for validation, at its end; 0 keeps none.",
           .unit = "ratio",
           .minimum = 0,
           .maximum = 0.5});
  set.add(prefix + ".shuffle", &options.shuffle,
          {.help = "Draw the windows of every epoch in an order of its own."});
}

}  // namespace strata
