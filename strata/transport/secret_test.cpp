#include "strata/transport/secret.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <vector>

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

TEST(Secret, HashesAsStandard) {  // RFC 4231, test cases 1 and 2
  EXPECT_EQ(hexadecimal(keyed_hash(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hexadecimal(keyed_hash("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

std::string own(const std::map<std::string, std::string>& variables) {
  return own_secret([&](const char* name) -> const char* {
    const auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

TEST(OwnSecret, IsCreatedOnceByConcurrentProcesses) {
  const ScratchFolder scratch;
  const std::string home = scratch.path("home");
  std::vector<std::string> found(8);
  std::vector<std::thread> threads;
  for (std::string& one : found) threads.emplace_back([&] { one = own({{"HOME", home}}); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found[0].size(), 64u);
  EXPECT_EQ(found, std::vector<std::string>(8, found[0]));
  struct stat about{};
  ASSERT_EQ(::stat((home + "/.config/strata/secret").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(home + "/.config/strata"), {}), 1);
  EXPECT_NE(own({{"HOME", home}, {"XDG_CONFIG_HOME", scratch.path("other")}}), found[0]);
}

TEST(OwnSecret, IsRejectedIfOthersMayReadIt) {
  const ScratchFolder scratch;
  own({{"XDG_CONFIG_HOME", scratch.path()}});
  ::chmod((scratch.path() + "/strata/secret").c_str(), 0640);
  EXPECT_THROW(own({{"XDG_CONFIG_HOME", scratch.path()}}), UserError);
  std::ofstream(scratch.path("file")) << "no folder";
  try {
    own({{"XDG_CONFIG_HOME", scratch.path("file")}});
    ADD_FAILURE() << "there is no such folder";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("STRATA_SECRET"), std::string::npos) << error.what();
  }
}

TEST(Secret, DigestsAreParsedFromText) {
  const Nonce nonce = make_nonce();
  EXPECT_EQ(parse_hex(hex_text(nonce)), nonce);
  std::string other = hex_text(nonce);
  other[5] = 'x';
  EXPECT_FALSE(parse_hex(other));
  other[5] = '-';
  EXPECT_FALSE(parse_hex(other));
  EXPECT_FALSE(parse_hex(hex_text(nonce).substr(1)));
}

TEST(Secret, IsNewEachTime) {
  EXPECT_EQ(make_secret().size(), 64u);
  EXPECT_NE(make_secret(), make_secret());
  EXPECT_NE(make_nonce(), make_nonce());
}

TEST(Secret, ComesFromEnvironmentOrFile) {
  const ScratchFolder folder;
  const std::string secret = make_secret();
  EXPECT_EQ(found({}), "");
  EXPECT_EQ(found({{"STRATA_SECRET", secret}}), secret);
  const std::string file = write(folder.path("secret"), secret + "\n", 0600);
  EXPECT_EQ(found({{"STRATA_SECRET_FILE", file}}), secret);
}

TEST(Secret, IsRejectedIfWeak) {
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
  EXPECT_NE(refusal({{"STRATA_SECRET", secret}, {"STRATA_SECRET_FILE", "x"}}).find("set twice"),
            std::string::npos);
}

}  // namespace
}  // namespace strata
