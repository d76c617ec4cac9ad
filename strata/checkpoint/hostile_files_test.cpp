// Changes the files of a small checkpoint in hundreds of ways, many with matching checksums, and
// loads the result: every outcome is a user or system error, soon and with little memory. Each
// batch runs in its own process, so that a crash names its change.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/checkpoint/example_states_test.h"
#include "strata/checkpoint/loader.h"
#include "strata/checkpoint/reader.h"
#include "strata/checkpoint/saver.h"
#include "strata/comm/ranks.h"
#include "strata/tokenizer/tokenizer.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTokenizer = R"({
  "added_tokens": [{"content": "<|end|>", "id": 9, "special": true, "normalized": false}],
  "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}]},
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE",
    "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "e": 4, "f": 5, "bc": 6, "ab": 7, "abc": 8},
    "merges": ["b c", ["a", "b"], "ab c"]}})";

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

class HostileFilesTest : public ::testing::Test {
 protected:
  static DecoderOptions model() {
    return {.layers = 2, .width = 8, .heads = 2, .vocab = 16, .context = 4};
  }

  void SetUp() override {
    at::set_num_threads(1);  // forked children start no threads
    const std::string tokenizer = folder_.path("tokenizer");
    fs::create_directory(tokenizer);
    write(tokenizer + "/tokenizer.json", kTokenizer);
    write(tokenizer + "/tokenizer_config.json", R"({"eos_token": "<|end|>"})");
    run_thread_ranks({.ranks = 1}, [&](Group& group, MemoryAccount&) {
      CheckpointSaver saver(
          {.folder = folder_.path("saved"), .model = model(), .tokenizer = tokenizer}, group,
          group);
      const ExampleStates states = ExampleRank(model(), {}, 0).owned();
      saver.save({1, 4}, states.weights, states.slots);
      whole_ = saver.wait();
    });
    for (const auto& entry : fs::directory_iterator(whole_))
      names_.push_back(entry.path().filename());
    std::sort(names_.begin(), names_.end());
    ASSERT_EQ(names_.size(), 6u);
  }

  // Everything that a program does with a checkpoint.
  static void load(const std::string& path) {
    const CheckpointReader reader = CheckpointReader::open(path);
    reader.verify_all();
    EXPECT_GE(reader.decoder().layers, 1);
    if (const std::string tokenizer = reader.tokenizer(); !tokenizer.empty()) {
      const auto made = make_tokenizer(tokenizer);
      made->decode(made->encode("abcabc <|end|> fedcba"));
    }
    const ExampleStates states = ExampleRank(model(), {}, 0).held();
    load_weights(path, model(), states.weights);
    if (!reader.is_pretrained()) load_states(path, model(), states.weights, states.slots);
  }

  // Writes the digests of the current files and the checksum of the manifest.
  void sign(const std::string& path) const {
    try {
      Manifest manifest = parse_manifest(read(whole_ + "/manifest.json"), "manifest.json");
      for (ManifestFile& file : manifest.files) {
        if (!fs::is_regular_file(fs::symlink_status(path + "/" + file.name))) continue;
        const std::string text = read(path + "/" + file.name);
        ChunkDigester digester;
        digester.add(std::as_bytes(std::span(text)));
        file.digest = digester.finish();
      }
      write(path + "/manifest.json", write_manifest(manifest));
    } catch (const Error&) {
    }
  }

  // Writes a matching checksum of the manifest, whatever its content.
  static void sign_text(const std::string& path) {
    std::string text = read(path);
    const std::size_t field = text.rfind(",\n  \"manifest_checksum\"");
    if (field == std::string::npos) return;
    text = text.substr(0, field) + "\n}";
    const std::uint64_t sum = checksum(std::as_bytes(std::span(text)));
    text.insert(text.size() - 2, ",\n  \"manifest_checksum\": \"" + checksum_text(sum) + "\"");
    write(path, text + "\n");
  }

  // Applies change number `change` to the copy at `path`; returns its description.
  std::string spoil(const std::string& path, int change) const {
    std::mt19937 random(static_cast<unsigned>(change));
    const auto below = [&](std::size_t n) {
      return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1));
    };
    const std::string name = names_[below(names_.size())], file = path + "/" + name;
    std::string text = read(file);
    const std::size_t kind = below(16), at = below(text.size());
    const auto numbers = [&](const std::string& number) {
      std::size_t digit = text.find_first_of("0123456789", below(text.size()));
      if (digit == std::string::npos) digit = 0;
      const std::size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
      text.replace(digit, end - digit, number);
    };
    switch (kind) {
      case 0:
        text[at] ^= static_cast<char>(1 << below(8));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.insert(at, 1 + below(9), static_cast<char>(random()));
        break;
      case 3:
        text.erase(at, 1 + below(40));
        break;
      case 4:
        text.insert(at, text.substr(below(text.size()), below(80)));
        break;
      case 5:
        text.insert(at, std::string(200'000, "[{\"("[below(3)]));
        break;
      case 6:
        text = std::string(200'000, '[') + std::string(200'000, ']');
        break;
      case 7:
        numbers("9223372036854775807");
        break;
      case 8:
        numbers("2147483646");
        break;
      case 9:
        numbers("-1");
        break;
      case 10:
        numbers("null");
        break;
      case 11:
        std::memset(text.data(), static_cast<int>(random()), std::min<std::size_t>(8, text.size()));
        break;
      case 12:
        numbers("1e308");
        break;
      default:
        break;
    }
    write(file, text);
    if (kind >= 13) fs::remove(file);
    if (kind == 14) fs::create_directory(file);
    if (kind == 15) {
      const std::size_t which = below(4);
      if (which == 0) ::mkfifo(file.c_str(), 0600);
      if (which == 1) fs::create_symlink(name, file);
      if (which == 2) fs::create_symlink("/dev/zero", file);
      if (which == 3) fs::create_symlink(std::string(300, 'x'), file);
    }
    const std::size_t signing = below(4);
    if (name == "manifest.json" && signing > 0 && kind < 13) sign_text(file);
    if (name != "manifest.json" && signing == 1) sign(path);
    if (signing == 3 && name != "manifest.json") fs::remove(path + "/manifest.json");
    return "change " + std::to_string(change) + ": kind " + std::to_string(kind) + " of " + name +
           ", signing " + std::to_string(signing);
  }

  // Runs in its own process: returns the first change of [first, last) with another outcome, -1 for
  // none.
  void run_batch(int first, int last, int* current) const noexcept {
    ::alarm(600);  // ends a process that hangs
    for (*current = first; *current < last; ++*current) {
      const std::string path = folder_.path("copy/step-00000001");
      fs::remove_all(folder_.path("copy"));
      fs::create_directory(folder_.path("copy"));
      fs::copy(whole_, path);
      const std::string what = spoil(path, *current);
      try {
        load(path);
      } catch (const std::exception& error) {
        if (exit_code(error) == 4) {
          std::cerr << what << ": " << to_error(error).what() << std::endl;
          ::_exit(1);
        }
      }
      struct rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      if (usage.ru_maxrss > kMaxKibibytes) {
        std::cerr << what << ": " << usage.ru_maxrss << " KiB of memory" << std::endl;
        ::_exit(2);
      }
    }
    ::_exit(0);
  }

  static constexpr long kMaxKibibytes = 1 << 20;

  ScratchFolder folder_;
  std::string whole_;
  std::vector<std::string> names_;
};

TEST_F(HostileFilesTest, LoadsUnchangedCheckpoint) { EXPECT_NO_THROW(load(whole_)); }

TEST_F(HostileFilesTest, EveryChangeIsUserOrSystemError) {
  constexpr int kChanges = 800, kBatch = 100;
  auto* current = static_cast<int*>(
      ::mmap(nullptr, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(current, MAP_FAILED);
  for (int first = 0; first < kChanges; first += kBatch) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) run_batch(first, first + kBatch, current);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "change " << *current << ", status " << status;
  }
  ::munmap(current, sizeof(int));
}

}  // namespace
}  // namespace strata
