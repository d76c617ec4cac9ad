// Stands for products by cuBLASLt in a build that lacks its headers.
#include "strata/nn/cuda/lt_products.h"

namespace strata {

const CudaProducts* lt_products() { return nullptr; }

}  // namespace strata
