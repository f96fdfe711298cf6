// The shm driver: shared memory of this host, "shm:/path/of/unix/socket".
#include <sys/stat.h>

#include "tailcast/fabric/driver.h"
#include "tailcast/fabric/shm_door.h"
#include "tailcast/fabric/shm_endpoint.h"

namespace tailcast::fabric {
namespace {

class Shm final : public Driver {
 public:
  std::string_view scheme() const override { return "shm"; }
  std::unique_ptr<Door> MakeDoor(const DoorContext& context) const override {
    if (context.options->shm_socket_path.empty()) return nullptr;
    return std::make_unique<ShmDoor>(context);
  }
  Result<std::shared_ptr<ClientSession>> Dial(const DialContext& context,
                                              const Target& target) const override {
    return MakeShmSession(context, target);
  }
  Result<std::shared_ptr<ChannelSession>> DialChannel(const DialContext& context,
                                                      const Target& target) const override {
    return MakeShmChannelSession(context, target);
  }
  // Its socket is a file of this host.
  bool InSight(const std::string& where) const override {
    struct stat info;
    return stat(where.c_str(), &info) == 0 && S_ISSOCK(info.st_mode);
  }
};

}  // namespace

const Driver& ShmDriver() {
  static const Shm driver;
  return driver;
}

}  // namespace tailcast::fabric
