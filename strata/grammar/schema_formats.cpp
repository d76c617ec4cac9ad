#include <map>

#include "strata/base/user_text.h"
#include "strata/grammar/schema_keywords.h"

namespace strata {
namespace {

#define DATE                                                                                       \
  "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]" \
  "|"                                                                                              \
  "30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|" \
  "[13579][26])00)-02-29)"
#define TIME                                                                                      \
  "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-" \
  "5][0-9])"
#define LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 OCTET "(?:\\." OCTET "){3}"
#define HEX "[0-9A-Fa-f]"
#define GROUP HEX "{1,4}"
#define LAST32 "(?:" GROUP ":" GROUP "|" IPV4 ")"
#define ATOM "[A-Za-z0-9!#$%&'*+/=?\\^_`{|}~-]+"
#define PATH "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%" HEX "{2})"

const std::map<std::string, const char*>& format_patterns() {
  static const std::map<std::string, const char*> kPatterns = {
      {"date", DATE},
      {"time", TIME},
      {"date-time", DATE "T" TIME},
      {"duration",
       "P(?:[0-9]+W|(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)?(?:T(?:[0-9]+H"
       "(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S))|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|"
       "[0-9]+M(?:[0-9]+D)?|[0-9]+D)"},
      {"uuid", HEX "{8}-" HEX "{4}-" HEX "{4}-" HEX "{4}-" HEX "{12}"},
      {"email", ATOM "(?:\\." ATOM ")*@" LABEL "(?:\\." LABEL ")+"},
      {"hostname", LABEL "(?:\\." LABEL ")*"},
      {"ipv4", IPV4},
      {"ipv6",
       "(?:(?:" GROUP ":){6}" LAST32 "|::(?:" GROUP ":){5}" LAST32 "|(?:" GROUP ")?::(?:" GROUP
       ":){4}" LAST32 "|(?:(?:" GROUP ":){0,1}" GROUP ")?::(?:" GROUP ":){3}" LAST32 "|(?:(?:" GROUP
       ":){0,2}" GROUP ")?::(?:" GROUP ":){2}" LAST32 "|(?:(?:" GROUP ":){0,3}" GROUP ")?::" GROUP
       ":" LAST32 "|(?:(?:" GROUP ":){0,4}" GROUP ")?::" LAST32 "|(?:(?:" GROUP ":){0,5}" GROUP
       ")?::" GROUP "|(?:(?:" GROUP ":){0,6}" GROUP ")?::)"},
      {"uri", "[A-Za-z][A-Za-z0-9+.-]*:(?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/" PATH "*)*|" PATH
              "+(?:/" PATH "*)*)(?:\\?(?:" PATH "|[/?])*)?(?:#(?:" PATH "|[/?])*)?"},
  };
  return kPatterns;
}

#undef DATE
#undef TIME
#undef LABEL
#undef OCTET
#undef IPV4
#undef HEX
#undef GROUP
#undef LAST32
#undef ATOM
#undef PATH

}  // namespace

const char* format_pattern(const std::string& format, const std::string& place) {
  const auto found = format_patterns().find(format);
  if (found != format_patterns().end()) return found->second;
  std::string known;
  for (const auto& [name, pattern] : format_patterns()) known += (known.empty() ? "" : ", ") + name;
  throw kSchemaErrors.user(place + "/format", "the format is not supported", known, quote(format),
                           "use pattern");
}

}  // namespace strata
