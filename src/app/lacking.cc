#include "tailcast/app/lacking.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include <nlohmann/json.hpp>

#include "tailcast/base/scope.h"
#include "tailcast/base/thread_loop.h"
#include "tailcast/storage/open_store.h"
#include "tailcast/stream/message_ids.h"
#include "tailcast/stream/shard_listing.h"

namespace tailcast::app {
namespace {

using nlohmann::json;

constexpr int64_t kLackingListedMax = 1000;  // of a shard
constexpr Duration kListTimeout = Duration::Seconds(1);

using Lacking = std::map<int64_t, std::string>;  // kind by sequence number

const char* KindName(v1::LackingFile::Kind kind) {
  switch (kind) {
    case v1::LackingFile::DAMAGED:
      return "damaged";
    case v1::LackingFile::INCOMPLETE:
      return "incomplete";
    default:
      return "absent";
  }
}

// Pairs below the newest name that are not there, or not whole. In an empty folder of a shard that
// has messages: the first one.
void AddHoles(const stream::ShardListing& listing, bool has_messages, Lacking& lacking) {
  // What is there again, and the scheduler has not said so yet.
  std::erase_if(lacking, [&](const auto& file) {
    const stream::ListedPair* pair = listing.Find(file.first);
    return file.second == "absent" && pair != nullptr && pair->complete();
  });
  int64_t last = listing.last() - 1;  // the newest may be just being opened
  if (listing.pairs().empty() && has_messages) last = listing.floor();
  last = std::min(last, listing.floor() + kLackingListedMax);
  for (int64_t seq = listing.floor(); seq <= last; ++seq) {
    const stream::ListedPair* pair = listing.Find(seq);
    if (pair == nullptr || !pair->complete()) lacking.try_emplace(seq, "absent");
  }
}

}  // namespace

void AddLacking(const v1::CellView& view, json& cell) {
  cell["lacking_files"] = view.lacking_total();
  std::map<stream::ShardId, Lacking> lacking;
  for (const v1::LackingFile& file : view.lacking()) {
    lacking[stream::ShardOf(file)][file.seq()] = KindName(file.kind());
  }
  std::map<std::string, stream::StreamId> ids;
  for (const v1::StreamConfig& stream : view.streams()) ids[stream.name()] = stream::IdOf(stream);
  ThreadLoop loop;
  const auto url = storage::ParseStoreUrl(view.store());
  auto store = url.ok() ? storage::OpenStore(&loop, *url)
                        : Result<std::unique_ptr<storage::Store>>(url.status());
  const Scope scope;
  size_t waiting = 0;
  const auto each = [&](auto visit) {
    for (json& stream : cell["streams"]) {
      const auto id = ids.find(stream["stream"].get<std::string>());
      if (id == ids.end()) continue;
      for (json& shard : stream["shards"]) {
        visit(stream::ShardId{id->second, shard["shard"].get<int32_t>()}, shard);
      }
    }
  };
  if (store.ok()) {
    each([&](const stream::ShardId& id, json& shard) {
      ++waiting;
      const bool has_messages = shard.value("messages", int64_t{0}) > 0;
      (*store)->List(stream::ShardDir(id), scope.Bind([&, id, has_messages](const auto& entries) {
        --waiting;
        if (!entries.ok()) return;
        const auto listing = stream::ShardListing::Parse(*entries);
        if (listing.ok()) AddHoles(*listing, has_messages, lacking[id]);
      }));
    });
    loop.RunUntil([&] { return waiting == 0; }, loop.Now() + kListTimeout);
  }
  each([&](const stream::ShardId& id, json& shard) {
    for (const auto& [seq, kind] : lacking[id]) {
      shard["lacking"].push_back({{"file", seq}, {"kind", kind}});
    }
  });
}

}  // namespace tailcast::app
