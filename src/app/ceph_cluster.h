// The Ceph cluster of a deployment on this machine (`tailcast up --storage ceph`): one monitor, one
// manager, three OSDs, cephx on, a pool for each cell, all below one folder. What it does is in
// ceph_cluster.sh, which is part of the program.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tailcast/base/status.h"

namespace tailcast::app {

class CephCluster {
 public:
  // Makes the cluster in `folder`, or starts the one that is there, with these pools; blocks until
  // it is up, which takes some 20 s. Ctrl-C ends the wait. What the daemons say goes to folder.log.
  //   FailedPrecondition  Ceph is not installed, or a daemon does not start; the message says why
  static Result<std::unique_ptr<CephCluster>> Start(const std::string& folder,
                                                    const std::vector<std::string>& pools);
  // Ends the daemons; what they hold stays in the folder.
  ~CephCluster();
  CephCluster(const CephCluster&) = delete;
  CephCluster& operator=(const CephCluster&) = delete;

  std::string conf() const { return folder_ + "/ceph.conf"; }

 private:
  explicit CephCluster(std::string folder) : folder_(std::move(folder)) {}
  Status Run(const std::vector<std::string>& words) const;

  const std::string folder_;
};

// The pool of a cell of such a deployment.
inline std::string CephPoolOf(const std::string& cell) { return "tailcast-" + cell; }

}  // namespace tailcast::app
