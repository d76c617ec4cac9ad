#include "strata/transport/transport_choice.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "strata/base/errors.h"
#include "strata/transport/join.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

// The first letter of the text that a process sends.
constexpr char kUsesUcx = 'u', kUsesSockets = 's', kFails = 'e';

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
    entries.push_back(it->path());
  std::ranges::sort(entries);
  return entries;
}

// Linux writes "4: ACTIVE".
bool is_active(const fs::path& port) {
  std::ifstream file(port / "state");
  int state = 0;
  return file >> state && state == 4;
}

std::string place_of(std::size_t process, std::size_t processes) {
  return "process " + std::to_string(process) + " of " + std::to_string(processes);
}

TransportChoice choose_for(Bootstrap& bootstrap, TransportKind requested, const UcxSupport& here) {
  if (requested == TransportKind::kAuto && names_loopback(bootstrap.own_address()))
    return {TransportKind::kSockets, "all processes are on this machine"};
  return choose_transport(requested, here);
}

std::string text_of_choice(Bootstrap& bootstrap, TransportKind requested, const UcxSupport& here) {
  try {
    const TransportChoice choice = choose_for(bootstrap, requested, here);
    return (choice.kind == TransportKind::kUcx ? kUsesUcx : kUsesSockets) + choice.reason;
  } catch (const Error& error) {
    return kFails + encode_error(error);
  }
}

}  // namespace

std::string active_rdma_device(const std::string& folder) {
  for (const fs::path& device : sorted_entries(folder))
    for (const fs::path& port : sorted_entries(device / "ports"))
      if (is_active(port)) return device.filename();
  return "";
}

UcxSupport ucx_support_of_this_machine() {
  return {.rdma_device = active_rdma_device("/sys/class/infiniband")};
}

TransportChoice choose_transport(TransportKind requested, const UcxSupport& here) {
  if (requested == TransportKind::kSockets) return {requested, "mesh.transport is sockets"};
  const bool automatic = requested == TransportKind::kAuto;
  if (automatic && here.rdma_device.empty())
    return {TransportKind::kSockets, "no RDMA device has an active port"};
  const std::optional<MissingUcx> missing = here.missing();
  if (missing && automatic)
    return {TransportKind::kSockets, "RDMA device " + here.rdma_device +
                                         " is not used: " + missing->reason + "; " + missing->fix};
  if (missing)
    throw UserError({.operation = "transport.ucx",
                     .where = "mesh.transport",
                     .what = missing->reason,
                     .expected = "a machine with UCX",
                     .got = "ucx",
                     .fix = missing->fix + ", or set mesh.transport=auto"});
  return {TransportKind::kUcx,
          automatic ? "RDMA device " + here.rdma_device : "mesh.transport is ucx"};
}

TransportChoice common_choice(const std::vector<TransportChoice>& by_process) {
  const auto differs = [&](const TransportChoice& choice) {
    return choice.kind != by_process[0].kind || choice.reason != by_process[0].reason;
  };
  const bool equal = std::ranges::none_of(by_process, differs);
  for (std::size_t i = 0; i < by_process.size(); ++i)
    if (by_process[i].kind == TransportKind::kSockets)
      return {TransportKind::kSockets,
              equal ? by_process[i].reason
                    : place_of(i, by_process.size()) + ": " + by_process[i].reason};
  return by_process.at(0);
}

TransportChoice agree_on_transport(Bootstrap& bootstrap, TransportKind requested,
                                   const UcxSupport& here) {
  if (requested == TransportKind::kSockets) return choose_transport(requested, here);
  const std::vector<std::string> texts =
      bootstrap.all_gather(text_of_choice(bootstrap, requested, here));
  std::vector<TransportChoice> choices;
  for (const std::string& text : texts) {
    STRATA_CHECK(!text.empty(), "transport.choose");
    if (text[0] == kFails)
      throw_error(located(decode_error(text.substr(1)), place_of(choices.size(), texts.size())));
    choices.push_back(
        {text[0] == kUsesUcx ? TransportKind::kUcx : TransportKind::kSockets, text.substr(1)});
  }
  return common_choice(choices);
}

}  // namespace strata
