/// Samples of a folder of images: a subfolder for each class, in alphabetical order.
///
///     photos/cat/1.jpg  photos/cat/2.png  photos/dog/1.jpg
///
/// Samples have one fixed order that mixes the classes, so that the last of them can validate.
/// Other files than .png, .jpg and .jpeg are left out.
///
/// Threads  const, any thread.
/// Cost     the list of files is read once; samples() decodes each image that it returns, with the
///          calling thread's pool.
/// Errors   UserError `[images.folder]`: no subfolder, or no image in one; as image_file.h,
///          for a damaged image (any, if there are several).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/data/sample_array.h"

namespace strata {

/// The images, bytes [samples, channels, height, width] (fitted_image()).
std::unique_ptr<const SampleArray> folder_images(const std::string& path, std::int64_t channels,
                                                 std::int64_t height, std::int64_t width);

/// The names of its classes; a class has the number of its place.
std::vector<std::string> folder_class_names(const std::string& path);

/// The number of each image's class, int64 [samples].
std::unique_ptr<const SampleArray> folder_classes(const std::string& path);

}  // namespace strata
