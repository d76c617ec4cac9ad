#include "strata/base/process_identity.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace strata {
namespace {

TEST(ProcessIdentity, NamesHostProcessAndTime) {
  ProcessIdentity identity = this_process();
  EXPECT_EQ(identity.process, ::getpid());
  identity.host = "one", identity.process = 12, identity.since = 1'000'000'000;
  EXPECT_EQ(text_of(identity), "host one, process 12, since 2001-09-09 01:46:40 UTC");
}

TEST(ProcessIdentity, ReportsEndOfKilledProcessBeforeItIsReaped) {
  int to_child[2], to_parent[2];
  ASSERT_EQ(::pipe(to_child), 0);
  ASSERT_EQ(::pipe(to_parent), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const std::uint64_t started = this_process().started;
    if (::write(to_parent[1], &started, sizeof(started)) != sizeof(started)) ::_exit(1);
    char none;
    static_cast<void>(!::read(to_child[0], &none, 1));
    ::_exit(0);
  }
  ProcessIdentity identity = this_process();
  identity.process = child;
  ASSERT_EQ(::read(to_parent[0], &identity.started, sizeof(identity.started)),
            static_cast<ssize_t>(sizeof(identity.started)));
  EXPECT_FALSE(has_ended(this_process()));
  EXPECT_FALSE(has_ended(identity));
  ProcessIdentity earlier = identity;
  --earlier.started;
  EXPECT_TRUE(has_ended(earlier)) << "its number belongs to another process by now";
  ::kill(child, SIGKILL);
  siginfo_t about{};
  ::waitid(P_PID, static_cast<id_t>(child), &about, WEXITED | WNOWAIT);
  EXPECT_TRUE(has_ended(identity));
  ProcessIdentity elsewhere = identity;
  elsewhere.machine = "another boot";
  EXPECT_FALSE(has_ended(elsewhere)) << "this machine cannot know";
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(has_ended(identity));
  for (const int descriptor : {to_child[0], to_child[1], to_parent[0], to_parent[1]})
    ::close(descriptor);
}

}  // namespace
}  // namespace strata
