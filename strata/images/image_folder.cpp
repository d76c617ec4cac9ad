#include "strata/images/image_folder.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "strata/base/error_source.h"
#include "strata/base/philox.h"
#include "strata/device/device.h"
#include "strata/device/parallel.h"
#include "strata/images/image_file.h"

namespace strata {
namespace {

constexpr ErrorSource kFolderErrors{"images.folder", "make a subfolder of images for each class"};

struct ImageOfClass {
  std::string file;
  std::int64_t number = 0;  // of its class
};
using ImageList = std::vector<ImageOfClass>;

constexpr std::uint64_t kOrderKey = 0x696D616765;

bool is_image(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".png" || ending == ".jpg" || ending == ".jpeg";
}

template <typename Keep>
std::vector<std::filesystem::path> sorted_entries(const std::filesystem::path& folder, Keep keep) {
  std::vector<std::filesystem::path> entries;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (keep(entry)) entries.push_back(entry.path());
  std::ranges::sort(entries);
  return entries;
}

std::vector<std::filesystem::path> class_folders(const std::string& path) {
  auto folders = sorted_entries(path, [](const auto& entry) { return entry.is_directory(); });
  if (folders.empty())
    throw kFolderErrors.user(path, "the folder has no classes", "a subfolder for each class",
                             "none");
  return folders;
}

ImageList list_images(const std::string& path) {
  const std::vector<std::filesystem::path> folders = class_folders(path);
  ImageList list;
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const auto files = sorted_entries(folders[i], [](const auto& entry) {
      return entry.is_regular_file() && is_image(entry.path());
    });
    if (files.empty())
      throw kFolderErrors.user(folders[i].string(), "the class has no images",
                               "files .png, .jpg or .jpeg", "none");
    for (const std::filesystem::path& file : files)
      list.push_back({file.string(), static_cast<std::int64_t>(i)});
  }
  // An order by random keys of the sorted files.
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  for (std::size_t i = 0; i < list.size(); ++i) order.emplace_back(mix_key(kOrderKey, i), i);
  std::ranges::sort(order);
  ImageList mixed;
  for (const auto& [key, i] : order) mixed.push_back(list[i]);
  return mixed;
}

class FolderImages final : public SampleArray {
 public:
  FolderImages(std::string path, std::int64_t channels, std::int64_t height, std::int64_t width)
      : path_(std::move(path)), images_(list_images(path_)) {
    if (channels != 1 && channels != 3)
      throw kFolderErrors.user(path_, "the model's input is no image", "1 or 3 channels",
                               std::to_string(channels), "name an array of numbers");
    shape_ = {std::ssize(images_), channels, height, width};
  }

  const std::string& path() const override { return path_; }
  const std::vector<std::int64_t>& shape() const override { return shape_; }
  at::ScalarType dtype() const override { return at::kByte; }

  at::Tensor samples(std::span<const std::int64_t> numbers) const override {
    std::vector<std::int64_t> shape = shape_;
    shape[0] = std::ssize(numbers);
    at::Tensor images = at::empty(shape, host_options(at::kByte));
    parallel_ranges(shape[0], 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto number = static_cast<std::size_t>(numbers[static_cast<std::size_t>(i)]);
        images[i].copy_(
            fitted_image(read_image(images_.at(number).file, shape_[1]), shape_[2], shape_[3]));
      }
    });
    return images;
  }

 private:
  std::string path_;
  ImageList images_;
  std::vector<std::int64_t> shape_;
};

class FolderClasses final : public SampleArray {
 public:
  explicit FolderClasses(std::string path)
      : path_(std::move(path)), images_(list_images(path_)), shape_{std::ssize(images_)} {}

  const std::string& path() const override { return path_; }
  const std::vector<std::int64_t>& shape() const override { return shape_; }
  at::ScalarType dtype() const override { return at::kLong; }

  at::Tensor samples(std::span<const std::int64_t> numbers) const override {
    at::Tensor classes = at::empty({std::ssize(numbers)}, host_options(at::kLong));
    auto* out = classes.data_ptr<std::int64_t>();
    for (const std::int64_t number : numbers)
      *out++ = images_.at(static_cast<std::size_t>(number)).number;
    return classes;
  }

 private:
  std::string path_;
  ImageList images_;
  std::vector<std::int64_t> shape_;
};

}  // namespace

std::unique_ptr<const SampleArray> folder_images(const std::string& path, std::int64_t channels,
                                                 std::int64_t height, std::int64_t width) {
  return std::make_unique<FolderImages>(path, channels, height, width);
}

std::vector<std::string> folder_class_names(const std::string& path) {
  std::vector<std::string> names;
  for (const std::filesystem::path& folder : class_folders(path))
    names.push_back(folder.filename().string());
  return names;
}

std::unique_ptr<const SampleArray> folder_classes(const std::string& path) {
  return std::make_unique<FolderClasses>(path);
}

}  // namespace strata
