#include "scheduler/lower.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace trident {

namespace {

class Lowering {
 public:
  Lowering(const Schedule& schedule, int rank, int receive_ahead)
      : schedule_(schedule),
        rank_(rank),
        ahead_(receive_ahead),
        rank_of_(schedule.total_stages()),
        chunk_of_(schedule.total_stages()) {
    for (int holder = 0; holder < schedule.stages; ++holder) {
      for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
        rank_of_[schedule.placement[holder][chunk]] = holder;
        chunk_of_[schedule.placement[holder][chunk]] = chunk;
      }
    }
    consumer_.resize(2 * static_cast<size_t>(schedule.chunks) * schedule.microbatches);
    for (const Action& action : schedule.ranks[rank]) {
      if (action.kind == Kind::backward_weight) continue;
      consumer_[cell(action.stage, action.microbatch, action.kind)] = action;
    }
  }

  std::vector<LoweredAction> list() const {
    const auto& actions = schedule_.ranks[rank_];
    const int count = static_cast<int>(actions.size());
    Incoming incoming = arrivals();
    std::vector<LoweredAction> list;
    int posted = 0;  // actions whose receive is posted
    for (int i = 0, end = 0; i < count; i = end) {
      end = i + (actions[i].fused ? 2 : 1);
      for (; posted < count && posted < end + ahead_; ++posted) {
        if (auto post = receive(actions[posted], true)) incoming.post(*post, list);
      }
      for (int k = i; k < end; ++k) {
        if (auto wait = receive(actions[k], false)) list.push_back(*wait);
      }
      for (int k = i; k < end; ++k) list.push_back(make(Step::compute, actions[k], -1));
      for (int k = i; k < end; ++k) {
        if (auto sent = send(actions[k])) list.push_back(*sent);
      }
    }
    return list;
  }

 private:
  // The messages that arrive at one rank, by link (sender and direction), in the order of sending.
  class Incoming {
   public:
    void add(const LoweredAction& post) { links_[link(post)].posts.push_back(post); }
    // Posts the receives of the link up to `wanted`, except those posted already.
    void post(const LoweredAction& wanted, std::vector<LoweredAction>& list) {
      Link& from = links_[link(wanted)];
      const auto begin = from.posts.begin();
      const auto at = std::find(begin + from.posted, from.posts.end(), wanted);
      if (at == from.posts.end()) return;  // posted together with a later message
      list.insert(list.end(), begin + from.posted, at + 1);
      from.posted = at + 1 - begin;
    }

   private:
    struct Link {
      std::vector<LoweredAction> posts;
      std::ptrdiff_t posted = 0;
    };
    static std::pair<int, Step> link(const LoweredAction& post) { return {post.peer, post.step}; }
    std::map<std::pair<int, Step>, Link> links_;
  };

  Incoming arrivals() const {
    std::set<int> senders;
    for (int stage : schedule_.placement[rank_]) {
      for (int other : {stage - 1, stage + 1}) {
        if (const auto from = peer(stage, other)) senders.insert(*from);
      }
    }
    Incoming incoming;
    for (int sender : senders) {
      for (const Action& action : schedule_.ranks[sender]) {
        const auto sent = send(action);
        if (!sent || sent->peer != rank_) continue;
        const int stage = action.stage + (action.kind == Kind::forward ? 1 : -1);
        // The action that consumes the message; a receive is labelled with its consumer.
        incoming.add(*receive(consumer_[cell(stage, action.microbatch, action.kind)], true));
      }
    }
    return incoming;
  }

  // `stage` is on this rank.
  size_t cell(int stage, int microbatch, Kind kind) const {
    return 2 * (static_cast<size_t>(chunk_of_[stage]) * schedule_.microbatches + microbatch) +
           (kind == Kind::forward ? 0 : 1);
  }

  LoweredAction make(Step step, const Action& action, int peer) const {
    return {step,
            action.kind,
            action.stage,
            chunk_of_[action.stage],
            action.microbatch,
            peer,
            step == Step::compute && action.fused};
  }

  // The rank of stage `other`; nullopt if there is no such stage or this rank holds it.
  std::optional<int> peer(int stage, int other) const {
    if (other < 0 || other >= schedule_.total_stages()) return std::nullopt;
    if (rank_of_[other] == rank_of_[stage]) return std::nullopt;
    return rank_of_[other];
  }

  std::optional<LoweredAction> receive(const Action& action, bool post) const {
    if (action.kind == Kind::backward_weight) return std::nullopt;
    const bool forward = action.kind == Kind::forward;
    const auto from = peer(action.stage, action.stage + (forward ? -1 : 1));
    if (!from) return std::nullopt;
    if (post) {
      return make(forward ? Step::post_receive_forward : Step::post_receive_backward, action,
                  *from);
    }
    return make(forward ? Step::wait_receive_forward : Step::wait_receive_backward, action, *from);
  }

  std::optional<LoweredAction> send(const Action& action) const {
    if (action.kind == Kind::backward_weight) return std::nullopt;
    const bool forward = action.kind == Kind::forward;
    const auto to = peer(action.stage, action.stage + (forward ? 1 : -1));
    if (!to) return std::nullopt;
    return make(forward ? Step::send_forward : Step::send_backward, action, *to);
  }

  const Schedule& schedule_;
  int rank_, ahead_;
  std::vector<int> rank_of_, chunk_of_;  // by stage
  std::vector<Action> consumer_;         // the consumer of each message, [chunk][micro-batch][F, B
                                         // or I]
};

}  // namespace

std::vector<LoweredAction> lower_rank(const Schedule& schedule, int rank, int receive_ahead) {
  return Lowering(schedule, rank, receive_ahead).list();
}

std::vector<std::vector<LoweredAction>> lower(const Schedule& schedule, int receive_ahead) {
  std::vector<std::vector<LoweredAction>> lists;
  for (int rank = 0; rank < schedule.stages; ++rank) {
    lists.push_back(lower_rank(schedule, rank, receive_ahead));
  }
  return lists;
}

}  // namespace trident
