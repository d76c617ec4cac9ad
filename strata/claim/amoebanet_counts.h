/// Holds the parameters of AmoebaNet-D (L, D) with 1,000 classes, which the claims of GPipe and
/// torchgpipe train.
///
/// Source  examples/vision/amoebanet.py builds the networks; tests/parity/vision_test.py counts
///         their parameters and compares them with this table.
#pragma once

#include <array>

namespace strata {

struct AmoebaNetCount {
  int layers, filters;
  double parameters;
};
inline constexpr std::array kAmoebaNetCounts{
    AmoebaNetCount{18, 208, 81505540}, AmoebaNetCount{18, 416, 319024120},
    AmoebaNetCount{18, 544, 542734840}, AmoebaNetCount{36, 544, 1055832376},
    AmoebaNetCount{72, 512, 1844858344}};

}  // namespace strata
