// Tests folders of other runs, and damaged files.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "strata/base/random_access_file.h"
#include "strata/disk/chunk_files_test.h"

namespace strata {
namespace {

class ChunkFileRefusals : public ChunkFileTest {};
INSTANTIATE_TEST_SUITE_P(Disk, ChunkFileRefusals, ::testing::ValuesIn(kDiskForms), name_of_form);

TEST_P(ChunkFileRefusals, RefusesSecondRunAndNamesHolder) {
  auto file = create();
  for (const bool replace : {false, true}) {
    ChunkFileOptions options = chunk_options();
    options.replace = replace;
    const ErrorText text = refusal([&] { ChunkFile::create(root(), kSizes, options); });
    EXPECT_EQ(text.operation, "disk.lock");
    EXPECT_EQ(text.where, root());
    EXPECT_NE(text.got.find("host "), std::string::npos);
    EXPECT_NE(text.got.find("process " + std::to_string(::getpid())), std::string::npos);
    EXPECT_NE(text.got.find(" UTC"), std::string::npos);
    EXPECT_NE(text.fix.find("memory.disk.path"), std::string::npos);
  }
  Image image;
  write_all(*file, image, 1);
  file->commit(1, "");
  EXPECT_EQ(refusal([&] { open(); }).operation, "disk.lock");
  file.reset();
  EXPECT_NO_THROW(open());
}

TEST_P(ChunkFileRefusals, ReplacesEarlierRunOnlyOnRequest) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "");
  }
  EXPECT_EQ(refusal([&] { create(); }).what, "the folder holds a step of an earlier run");
  EXPECT_EQ(read_all(*open()), image);
  ChunkFileOptions options = chunk_options();
  options.replace = true;
  const auto file = ChunkFile::create(root(), {5}, options);
  EXPECT_FALSE(ChunkFile::exists(root()));
  EXPECT_FALSE(file->committed_step());
}

TEST_P(ChunkFileRefusals, RefusesFilesThatDoNotBelongTogether) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "");
  }
  std::vector<std::int64_t> other = kSizes;
  other[3] += 1;
  const ErrorText text = refusal([&] { ChunkFile::open(root(), chunk_options(), other); });
  EXPECT_EQ(text.what, "the folder holds chunks of other sizes, first chunk 3");
  other = kSizes;
  other.push_back(1);
  refusal([&] { ChunkFile::open(root(), chunk_options(), other); });
  std::filesystem::resize_file(data(), 8192);
  EXPECT_EQ(refusal([&] { open(); }).what, "the file has another size than its manifest says");
  EXPECT_EQ(refusal([&] { ChunkFile::open(folder_.path("none"), chunk_options()); }).what,
            "no committed step lies here");
}

// Files cut at any place, and other kinds of files in their place.
TEST_P(ChunkFileRefusals, RefusesFilesWithoutWholeBlocks) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "");
  }
  const auto bytes = static_cast<std::int64_t>(std::filesystem::file_size(data()));
  for (const std::int64_t size : {bytes - 1, bytes + 1, std::int64_t{4097}, std::int64_t{1}}) {
    std::filesystem::resize_file(data(), static_cast<std::uintmax_t>(size));
    const ErrorText text = refusal([&] { open(); });
    EXPECT_EQ(text.where, data());
    EXPECT_EQ(text.what, "the file has a size that no run has written");
    EXPECT_EQ(text.got, std::to_string(size));
  }
  std::filesystem::remove(data());
  refusal([&] { open(); });
  ASSERT_EQ(::mkfifo(data().c_str(), 0600), 0);
  EXPECT_EQ(refusal([&] { open(); }).what, "this is not a file");
  std::filesystem::remove(data());
  std::filesystem::create_directory(data());
  EXPECT_EQ(refusal([&] { open(); }).where, data());
  std::filesystem::remove(data());
  std::filesystem::create_symlink("elsewhere", data());
  EXPECT_EQ(refusal([&] { open(); }).where, data());
}

TEST_P(ChunkFileRefusals, RefusesManifestWithAnyChangedByte) {
  Image image;
  {
    const auto file = create();
    write_all(*file, image, 1);
    file->commit(1, "text");
  }
  const std::string path = root() + "/" + kChunkManifestName;
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  for (std::size_t i = 0; i < text.size(); i += 7) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 2);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_EQ(error_of([&] { open(); }).kind(), ErrorKind::kUser) << i;
  }
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(read_all(*open()), image);
}

}  // namespace
}  // namespace strata
