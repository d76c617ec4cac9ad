#include "strata/openai/api_error.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "strata/base/errors.h"

namespace strata {
namespace {

TEST(ApiErrors, ErrorOfTheUserIsStatus400AndOthersAre500) {
  const ApiError user = ApiError::of(UserError({.operation = "a.b",
                                                .where = "/secret/path",
                                                .what = "the text cannot be used",
                                                .expected = "x",
                                                .got = "y",
                                                .fix = "use x"}));
  EXPECT_EQ(user.parts().status, 400);
  EXPECT_EQ(user.json().dump(),
            R"({"error":{"message":"the text cannot be used: expected x, got y",)"
            R"("type":"invalid_request_error","param":null,"code":null}})");
  const ApiError bug = ApiError::of(std::runtime_error("broken"));
  EXPECT_EQ(bug.parts().status, 500);
  EXPECT_EQ(bug.parts().type, "server_error");
}

TEST(ApiErrors, ConversionKeepsAnApiError) {
  const ApiError busy({.status = 429, .message = "m", .param = "p", .code = "c"});
  EXPECT_EQ(ApiError::of(busy).parts().status, 429);
  EXPECT_EQ(ApiError::of(busy).json(), busy.json());
}

}  // namespace
}  // namespace strata
