// Tests reading, fitting and changing images; damaged files of every length are refused.
// tests/parity/graph_recipe_test.py compares with another decoder.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>
#include <jpeglib.h>
#include <png.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"
#include "strata/device/device.h"
#include "strata/images/augmentation.h"
#include "strata/images/image_file.h"
#include "strata/images/image_folder.h"

namespace strata {
namespace {

// [3, height, width] with values that differ.
at::Tensor colours(std::int64_t height, std::int64_t width) {
  return at::arange(3 * height * width, host_options(at::kLong))
      .mul(7)
      .remainder(256)
      .view({3, height, width})
      .to(at::kByte);
}

std::string png_of(const at::Tensor& image) {
  const at::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.width = static_cast<png_uint_32>(image.size(2));
  png.height = static_cast<png_uint_32>(image.size(1));
  png.format = image.size(0) == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(png, size, 0, pixels.const_data_ptr(), 0, nullptr);
  std::string bytes(size, '\0');
  png_image_write_to_memory(&png, bytes.data(), &size, 0, pixels.const_data_ptr(), 0, nullptr);
  bytes.resize(size);
  return bytes;
}

std::string jpeg_of(const at::Tensor& image) {
  at::Tensor pixels = image.permute({1, 2, 0}).contiguous();
  jpeg_compress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  unsigned char* memory = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&jpeg, &memory, &size);
  jpeg.image_width = static_cast<JDIMENSION>(image.size(2));
  jpeg.image_height = static_cast<JDIMENSION>(image.size(1));
  jpeg.input_components = static_cast<int>(image.size(0));
  jpeg.in_color_space = image.size(0) == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&jpeg);
  jpeg_set_quality(&jpeg, 100, TRUE);
  jpeg_start_compress(&jpeg, TRUE);
  for (std::int64_t row = 0; row < image.size(1); ++row) {
    auto* line = pixels[row].data_ptr<unsigned char>();
    jpeg_write_scanlines(&jpeg, &line, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(memory), size);
  std::free(memory);
  return bytes;
}

class ImagesTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& bytes) {
    const std::string path = folder_.path(name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  template <typename F>
  static std::string refusal(F f) {
    try {
      f();
    } catch (const UserError& error) {
      return error.text().what;
    }
    return "accepted";
  }

  ScratchFolder folder_;
};

TEST_F(ImagesTest, PngHasItsPixelsInColourAndGrey) {
  const at::Tensor image = colours(5, 7);
  EXPECT_TRUE(at::equal(read_image(write("a.png", png_of(image)), 3), image));
  const at::Tensor grey = image.narrow(0, 0, 1);
  const std::string path = write("b.png", png_of(grey));
  EXPECT_TRUE(at::equal(read_image(path, 1), grey));
  EXPECT_TRUE(at::equal(read_image(path, 3), grey.expand({3, 5, 7})));
}

TEST_F(ImagesTest, JpegIsCloseToItsPixels) {
  at::Tensor image = at::empty({3, 16, 16}, host_options(at::kByte));
  for (int channel = 0; channel < 3; ++channel) image[channel].fill_(40 + 70 * channel);
  const at::Tensor found = read_image(write("a.jpg", jpeg_of(image)), 3);
  EXPECT_LE((found.to(at::kInt) - image.to(at::kInt)).abs().max().item<int>(), 3);
  const at::Tensor grey = read_image(write("b.jpg", jpeg_of(image.narrow(0, 1, 1))), 1);
  EXPECT_LE((grey.to(at::kInt) - 110).abs().max().item<int>(), 2);
}

TEST_F(ImagesTest, DamagedFilesOfEveryLengthAreRefused) {
  for (const std::string& whole : {png_of(colours(9, 9)), jpeg_of(colours(16, 16))}) {
    const at::Tensor image = read_image(write("whole", whole), 3);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const std::string path = write("cut", whole.substr(0, length));
      // What follows the pixels may be missing.
      if (refusal([&] { read_image(path, 3); }) == "accepted")
        EXPECT_TRUE(at::equal(read_image(path, 3), image)) << length;
    }
    EXPECT_NE(refusal([&] { read_image(write("cut", whole.substr(0, whole.size() / 2)), 3); }),
              "accepted");
    // Changed bytes may still be an image; they may not crash.
    for (std::size_t at = 0; at < whole.size(); ++at) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ 0x5A);
      const std::string path = write("changed", changed);
      refusal([&] { read_image(path, 3); });
    }
  }
}

TEST_F(ImagesTest, HugeSizesAreRefusedBeforeMemoryIsTaken) {
  std::string png = png_of(colours(2, 2));
  png.replace(16, 8, std::string("\x7f\xff\xff\xff\x7f\xff\xff\xff", 8));
  EXPECT_NE(refusal([&] { read_image(write("a.png", png), 3); }), "accepted");
  std::string jpeg = jpeg_of(colours(8, 8));
  const std::size_t frame = jpeg.find("\xff\xc0");
  jpeg.replace(frame + 5, 4, std::string("\xea\x60\xea\x60", 4));
  EXPECT_EQ(refusal([&] { read_image(write("a.jpg", jpeg), 3); }),
            "an image of this size is not read");
}

TEST_F(ImagesTest, FittedImageKeepsTheMiddle) {
  const at::Tensor image = colours(4, 8);
  EXPECT_TRUE(at::equal(fitted_image(image, 4, 4), image.narrow(2, 2, 4)));
  EXPECT_TRUE(at::equal(fitted_image(image, 4, 8), image));
  const at::Tensor flat = at::full({3, 30, 50}, 9, host_options(at::kByte));
  EXPECT_TRUE(at::equal(fitted_image(flat, 7, 5), at::full({3, 7, 5}, 9, host_options(at::kByte))));
  const at::Tensor thin = at::zeros({3, 60000, 1}, host_options(at::kByte));
  EXPECT_EQ(fitted_image(thin, 224, 224).sizes(), at::IntArrayRef({3, 224, 224}));
  // Half the size: averages.
  at::Tensor halves = at::zeros({1, 4, 4}, host_options(at::kByte));
  halves.narrow(2, 2, 2).fill_(200);
  const at::Tensor small = fitted_image(halves, 2, 2);
  EXPECT_LT(small[0][0][0].item<int>(), 60);
  EXPECT_GT(small[0][0][1].item<int>(), 140);
}

TEST_F(ImagesTest, FolderHasEachImageWithItsClass) {
  for (int kind = 0; kind < 3; ++kind)
    for (int i = 0; i < 10; ++i)
      write("photos/" + std::string(1, static_cast<char>('a' + kind)) + "/" + std::to_string(i) +
                (i % 2 == 0 ? ".png" : ".PNG"),
            png_of(at::full({3, 6, 6}, 10 * kind + i, host_options(at::kByte))));
  write("photos/a/readme.txt", "no image");
  const std::string path = folder_.path("photos");
  const auto images = folder_images(path, 3, 4, 4), classes = folder_classes(path);
  EXPECT_EQ(images->shape(), (std::vector<std::int64_t>{30, 3, 4, 4}));
  EXPECT_EQ(classes->count(), 30);
  std::vector<std::int64_t> numbers(30);
  for (int i = 0; i < 30; ++i) numbers[i] = i;
  const at::Tensor values = images->samples(numbers).select(1, 0).select(1, 0).select(1, 0);
  const at::Tensor kinds = classes->samples(numbers);
  EXPECT_TRUE(at::equal(at::floor_divide(values.to(at::kLong), 10), kinds));
  std::set<int> seen;
  for (int i = 0; i < 30; ++i) seen.insert(values[i].item<int>());
  EXPECT_EQ(seen.size(), 30u);
  // The last ones can validate: they are not of one class.
  EXPECT_GT(kinds.narrow(0, 24, 6).max().item<int>(), kinds.narrow(0, 24, 6).min().item<int>());
}

TEST_F(ImagesTest, FoldersWithoutClassesOrImagesAreRefused) {
  std::filesystem::create_directories(folder_.path("empty/a"));
  EXPECT_EQ(refusal([&] { folder_classes(folder_.path("empty")); }), "the class has no images");
  EXPECT_EQ(refusal([&] { folder_classes(folder_.path("empty/a")); }), "the folder has no classes");
  write("one/a/1.png", png_of(colours(2, 2)));
  EXPECT_EQ(refusal([&] { folder_images(folder_.path("one"), 2, 2, 2); }),
            "the model's input is no image");
}

TEST_F(ImagesTest, AugmentationDependsOnThePositionOfTheSampleAlone) {
  const at::Tensor images = at::rand({6, 3, 5, 4}, host_options(at::kFloat));
  const Augmentation both{.flip = true, .crop_padding = 2};
  const at::Tensor together = augmented(images, both, 1, 100);
  for (std::int64_t i = 0; i < 6; ++i)
    EXPECT_TRUE(at::equal(augmented(images.narrow(0, i, 1), both, 1, 100 + i)[0], together[i]));
  EXPECT_FALSE(at::equal(augmented(images, both, 2, 100), together));
  EXPECT_FALSE(at::equal(augmented(images, both, 1, 200), together));
}

TEST_F(ImagesTest, HalfOfTheImagesAreMirroredAndEveryCropOccurs) {
  const at::Tensor image = at::arange(1, 7, host_options(at::kFloat)).view({1, 1, 1, 6});
  int mirrored = 0;
  std::set<int> shifts;
  for (int i = 0; i < 400; ++i) {
    const at::Tensor flipped = augmented(image, {.flip = true}, 3, i);
    const bool is_mirrored = at::equal(flipped, image.flip({3}));
    EXPECT_TRUE(is_mirrored || at::equal(flipped, image));
    mirrored += is_mirrored ? 1 : 0;
    const at::Tensor cut = augmented(image.expand({1, 1, 3, 6}), {.crop_padding = 1}, 3, i);
    shifts.insert(static_cast<int>(cut[0][0][1][2].item<float>()));
  }
  EXPECT_GT(mirrored, 150);
  EXPECT_LT(mirrored, 250);
  EXPECT_EQ(shifts, (std::set<int>{2, 3, 4}));
}

}  // namespace
}  // namespace strata
