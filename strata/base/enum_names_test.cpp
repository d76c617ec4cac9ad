#include "strata/base/enum_names.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>

namespace strata {
namespace {

enum class Colour : std::uint8_t { kRed, kGreen, kBlue };

const char* name_of(Colour colour) {
  using enum Colour;
  static constexpr EnumNames<Colour> kNames{{kRed, "red"}, {kGreen, "green"}, {kBlue, "blue"}};
  return kNames[colour];
}

static_assert(count_enumerators<Colour>() == 3);

// The constructor of a table throws each of these at compile time.
TEST(EnumNames, RefuseAListThatIsNotTheEnum) {
  using enum Colour;
  using Names = EnumNames<Colour>;
  EXPECT_STREQ(Names::fault_of({{kRed, "red"}, {kGreen, "green"}, {kBlue, "blue"}}), "");
  EXPECT_STREQ(Names::fault_of({{kRed, "red"}, {kGreen, "green"}}),
               "the enum has more values, or fewer");
  EXPECT_STREQ(Names::fault_of({{kRed, "red"}, {kBlue, "blue"}, {kGreen, "green"}}),
               "not the order of the enum");
  EXPECT_STREQ(Names::fault_of({{kRed, "red"}, {kGreen, ""}, {kBlue, "blue"}}), "an empty name");
  EXPECT_STREQ(Names::fault_of({{kRed, "red"}, {kGreen, "green"}, {kBlue, "red"}}),
               "one name of two values");
}

TEST(EnumNames, FindAValueByItsNameAndANameByItsValue) {
  for (const auto& [name, value] : all_named<Colour>()) {
    EXPECT_EQ(name, name_of(value));
    EXPECT_EQ(value_named<Colour>(name), value);
  }
  EXPECT_EQ(value_named<Colour>("Red"), std::nullopt);
  EXPECT_EQ(value_named<Colour>(""), std::nullopt);
  EXPECT_THROW(name_of(static_cast<Colour>(3)), std::out_of_range);
}

TEST(EnumNames, ListAllNamesInTheOrderOfTheEnum) {
  EXPECT_EQ(all_names<Colour>(), (std::vector<std::string>{"red", "green", "blue"}));
  EXPECT_EQ(list_names<Colour>(), "red, green, blue");
  EXPECT_EQ(list_names<Colour>(" or "), "red, green or blue");
}

}  // namespace
}  // namespace strata
