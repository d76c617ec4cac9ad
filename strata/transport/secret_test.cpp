#include "strata/transport/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <map>

#include "strata/base/errors.h"
#include "strata/base/scratch_folder.h"

namespace strata {
namespace {

std::string hexadecimal(const Digest& digest) {
  std::string text;
  char two[3];
  for (const unsigned char byte : digest) {
    std::snprintf(two, sizeof two, "%02x", byte);
    text += two;
  }
  return text;
}

std::string found(const std::map<std::string, std::string>& variables) {
  return secret_from([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

std::string refusal(const std::map<std::string, std::string>& variables) {
  try {
    found(variables);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

std::string write(const std::string& path, const std::string& text, mode_t mode) {
  std::ofstream(path) << text;
  ::chmod(path.c_str(), mode);
  return path;
}

TEST(Secret, HashesAsTheStandardSays) {  // RFC 4231, test cases 1 and 2
  EXPECT_EQ(hexadecimal(keyed_hash(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

TEST(Secret, IsNewEachTime) {
  EXPECT_EQ(make_secret().size(), 64u);
  EXPECT_NE(make_secret(), make_secret());
  EXPECT_NE(make_nonce(), make_nonce());
}

TEST(Secret, ComesFromTheEnvironmentOrAFile) {
  const ScratchFolder folder;
  const std::string secret = make_secret();
  EXPECT_EQ(found({}), "");
  EXPECT_EQ(found({{"STRATA_SECRET", secret}}), secret);
  const std::string file = write(folder.path("secret"), secret + "\n", 0600);
  EXPECT_EQ(found({{"STRATA_SECRET_FILE", file}}), secret);
}

TEST(Secret, IsRefusedWhereItIsWeak) {
  const ScratchFolder folder;
  EXPECT_NE(refusal({{"STRATA_SECRET", ""}}).find("16 to 4096"), std::string::npos);
  const std::string shown = refusal({{"STRATA_SECRET", "swordfish"}});
  EXPECT_NE(shown.find("16 to 4096"), std::string::npos);
  EXPECT_EQ(shown.find("swordfish"), std::string::npos) << "a message shows the secret";
  const std::string secret = make_secret();
  for (const mode_t mode : {0640, 0604, 0620, 0666}) {
    const std::string file = write(folder.path("open" + std::to_string(mode)), secret, mode);
    EXPECT_NE(refusal({{"STRATA_SECRET_FILE", file}}).find("chmod 600 " + file), std::string::npos);
  }
  EXPECT_NE(refusal({{"STRATA_SECRET_FILE", folder.path()}}).find("regular"), std::string::npos);
  EXPECT_NE(refusal({{"STRATA_SECRET_FILE", folder.path("none")}}).find("cannot be read"),
            std::string::npos);
  ::mkfifo((folder.path("pipe")).c_str(), 0600);
  EXPECT_NE(refusal({{"STRATA_SECRET_FILE", folder.path("pipe")}}).find("regular"),
            std::string::npos);
  EXPECT_NE(refusal({{"STRATA_SECRET", secret}, {"STRATA_SECRET_FILE", "x"}}).find("given twice"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
