#include <map>

#include "strata/base/user_text.h"
#include "strata/grammar/schema_keywords.h"

namespace strata {
namespace {

std::string any_of(std::initializer_list<std::string> alternatives) {
  std::string all;
  for (const std::string& each : alternatives) all += (all.empty() ? "(?:" : "|") + each;
  return all + ")";
}

std::string date_pattern() {
  const std::string leap_year = any_of({
      "[0-9]{2}(?:0[48]|[2468][048]|[13579][26])",
      "(?:[02468][048]|[13579][26])00",
  });
  const std::string day = any_of({
      "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
      "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
      "02-(?:0[1-9]|1[0-9]|2[0-8])",
  });
  return any_of({"[0-9]{4}-" + day, leap_year + "-02-29"});
}

std::string time_pattern() {
  const std::string minutes = "(?:[01][0-9]|2[0-3]):[0-5][0-9]";
  return minutes + ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" + minutes + ")";
}

std::string duration_pattern() {
  const std::string days = any_of({
      "[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?",
      "[0-9]+M(?:[0-9]+D)?",
      "[0-9]+D",
  });
  const std::string time = "T" + any_of({
                                     "[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?",
                                     "[0-9]+M(?:[0-9]+S)?",
                                     "[0-9]+S",
                                 });
  return "P" + any_of({"[0-9]+W", days + "?" + time, days});
}

std::string ipv4_pattern() {
  const std::string octet = any_of({
      "25[0-5]",
      "2[0-4][0-9]",
      "1[0-9]{2}",
      "[1-9]?[0-9]",
  });
  return octet + "(?:\\." + octet + "){3}";
}

std::string ipv6_pattern() {
  const std::string group = "[0-9A-Fa-f]{1,4}";
  const std::string last32 = any_of({group + ":" + group, ipv4_pattern()});
  // Groups before "::", and groups with a colon each after it.
  const auto before = [&](const std::string& most) {
    return "(?:(?:" + group + ":){0," + most + "}" + group + ")?::";
  };
  const auto after = [&](const std::string& count) { return "(?:" + group + ":){" + count + "}"; };
  return any_of({
      after("6") + last32,
      "::" + after("5") + last32,
      before("0") + after("4") + last32,
      before("1") + after("3") + last32,
      before("2") + after("2") + last32,
      before("3") + after("1") + last32,
      before("4") + last32,
      before("5") + group,
      before("6"),
  });
}

std::string uri_pattern() {
  const std::string part = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string path = "(?:/" + part + "*)*", rest = "(?:" + part + "|[/?])*";
  const std::string place = any_of({
      "//[A-Za-z0-9.-]+(?::[0-9]{1,5})?" + path,
      part + "+" + path,
  });
  return "[A-Za-z][A-Za-z0-9+.-]*:" + place + "(?:\\?" + rest + ")?(?:#" + rest + ")?";
}

const std::map<std::string, std::string>& format_patterns() {
  static const std::string kLabel = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?";
  static const std::string kAtom = "[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~-]+", kHex = "[0-9A-Fa-f]";
  static const std::map<std::string, std::string> kPatterns = {
      {"date", date_pattern()},
      {"time", time_pattern()},
      {"date-time", date_pattern() + "T" + time_pattern()},
      {"duration", duration_pattern()},
      {"uuid", kHex + "{8}(?:-" + kHex + "{4}){3}-" + kHex + "{12}"},
      {"email", kAtom + "(?:\\." + kAtom + ")*@" + kLabel + "(?:\\." + kLabel + ")+"},
      {"hostname", kLabel + "(?:\\." + kLabel + ")*"},
      {"ipv4", ipv4_pattern()},
      {"ipv6", ipv6_pattern()},
      {"uri", uri_pattern()},
  };
  return kPatterns;
}

}  // namespace

const std::string& format_pattern(const std::string& format, const std::string& place) {
  const auto found = format_patterns().find(format);
  if (found != format_patterns().end()) return found->second;
  std::string known;
  for (const auto& [name, pattern] : format_patterns()) known += (known.empty() ? "" : ", ") + name;
  throw kSchemaErrors.user(place + "/format", "the format is not supported", known, quote(format),
                           "use pattern");
}

}  // namespace strata
