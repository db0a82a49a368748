#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "scheduler/execute.h"
#include "scheduler/lower.h"
#include "scheduler/validate.h"
#include "tests/scheduler/ordered_channels.h"
#include "tests/scheduler/sizes.h"

namespace trident {
namespace {

std::string joined(const std::vector<LoweredAction>& list) {
  std::string text;
  for (const LoweredAction& action : list) text += (text.empty() ? "" : "; ") + to_string(action);
  return text;
}

TEST(Lower, ReceivesArePostedOneComputeAheadAndSendsFollowAtOnce) {
  const auto lists = lower(one_f_one_b(2, 2));
  EXPECT_EQ(joined(lists[0]),
            "0F0; send of 0F0 to rank 1; post receive for 0B0 from rank 1; 0F1; "
            "send of 0F1 to rank 1; post receive for 0B1 from rank 1; "
            "wait receive for 0B0 from rank 1; 0B0; wait receive for 0B1 from rank 1; 0B1");
  EXPECT_EQ(joined(lists[1]),
            "post receive for 1F0 from rank 0; wait receive for 1F0 from rank 0; 1F0; "
            "post receive for 1F1 from rank 0; 1B0; send of 1B0 to rank 0; "
            "wait receive for 1F1 from rank 0; 1F1; 1B1; send of 1B1 to rank 0");
}

TEST(Lower, NothingIsSentInsideARank) {
  const auto lists = lower(interleaved_one_f_one_b(1, 3, 3));
  ASSERT_EQ(lists[0].size(), 18u);
  for (const auto& action : lists[0]) {
    EXPECT_EQ(action.step, Step::compute);
  }
}

TEST(Lower, EachReceiveHasOnePostOneWaitAndOneSendOfTheSameTag) {
  for (const ScheduleRequest& request : small_requests()) {
    const Schedule schedule = make_schedule(request);
    const int m = schedule.microbatches;
    std::map<std::tuple<int, int, int>, int> sent, posted, waited;  // (from, to, tag): count
    const auto lists = lower(schedule, 2);
    for (int rank = 0; rank < schedule.stages; ++rank) {
      std::set<int> open;
      for (const LoweredAction& action : lists[rank]) {
        const int tag = transfer_tag(action, m);
        if (action.step == Step::compute) {
          EXPECT_EQ(schedule.placement[rank][action.chunk], action.stage);
          continue;
        }
        EXPECT_GE(tag, 0);
        EXPECT_LT(tag, 2 * schedule.total_stages() * m);
        EXPECT_NE(action.peer, rank);
        if (is_send(action.step)) ++sent[{rank, action.peer, tag}];
        if (is_post(action.step)) ++posted[{action.peer, rank, tag}], open.insert(tag);
        if (is_wait(action.step)) {
          ++waited[{action.peer, rank, tag}];
          EXPECT_TRUE(open.contains(tag)) << "waits before it posts";
        }
      }
    }
    EXPECT_EQ(sent, posted);
    EXPECT_EQ(sent, waited);
    for (const auto& [key, count] : sent) EXPECT_EQ(count, 1);
    // Every stage boundary between two ranks carries each micro-batch twice.
    int boundaries = 0;
    for (int stage = 1; stage < schedule.total_stages(); ++stage) {
      boundaries += schedule.rank_of_stage(stage) != schedule.rank_of_stage(stage - 1);
    }
    EXPECT_EQ(std::ssize(sent), 2 * boundaries * m);
  }
}

TEST(Lower, OrderedChannelsAreEnoughForEveryKind) {
  std::mt19937 random(3);
  for (const ScheduleRequest& request : small_requests()) {
    SCOPED_TRACE(request.kind);
    run_over_ordered_channels(make_schedule(request), random);
    if (testing::Test::HasFailure()) return;
  }
}

// Rank 1 runs the micro-batches in reverse order, so the first ones wait in its buffers.
TEST(Lower, RanksMayOrderMicroBatchesDifferently) {
  Schedule schedule = gpipe(2, 5);
  for (const auto& [begin, end] : {std::pair{0, 5}, {5, 10}}) {
    std::reverse(schedule.ranks[1].begin() + begin, schedule.ranks[1].begin() + end);
  }
  validate(schedule);
  const auto list = lower(schedule)[1];
  EXPECT_EQ(joined({list.begin(), list.begin() + 7}),
            "post receive for 1F0 from rank 0; post receive for 1F1 from rank 0; "
            "post receive for 1F2 from rank 0; post receive for 1F3 from rank 0; "
            "post receive for 1F4 from rank 0; wait receive for 1F4 from rank 0; 1F4");
  std::mt19937 random(4);
  run_over_ordered_channels(schedule, random);
}

// The messages between ranks, by direction, receiving stage and micro-batch.
class Mailboxes {
 public:
  using Key = std::tuple<bool, int, int>;

  void put(Key key, int64_t value) {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(values_.emplace(key, value).second) << "sent twice";
    arrived_.notify_all();
  }

  int64_t take(Key key) {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return values_.contains(key); })) {
      throw Error("deadlock");
    }
    const int64_t value = values_.at(key);
    values_.erase(key);
    return value;
  }

  bool empty() const { return values_.empty(); }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<Key, int64_t> values_;
};

// A pipeline of integers: stage s maps its activation x to 3x + s + i, and gradient g to 5g + s +
// i.
class FakeRunner : public StageRunner {
 public:
  FakeRunner(const Schedule& schedule, int rank, Mailboxes& mail)
      : schedule_(schedule), rank_(rank), mail_(mail) {}

  void forward(int chunk, int i) override {
    const int s = stage(chunk);
    const int64_t input = s == 0 ? i : take_input(true, s, i);
    hand_over(true, s, i, 3 * input + s + i, s + 1);
  }
  void backward(int chunk, int i) override {
    backward_input(chunk, i);
    backward_weight(chunk, i);
  }
  void backward_input(int chunk, int i) override {
    const int s = stage(chunk), last = schedule_.total_stages() - 1;
    const int64_t gradient =
        s == last ? std::exchange(output_[{true, s, i}], 0) : take_input(false, s, i);
    hand_over(false, s, i, 5 * gradient + s + i, s - 1);
    if (s == 0) first_gradients[i] = output_[{false, 0, i}];
  }
  void backward_weight(int chunk, int i) override { weight_order[chunk].push_back(i); }

  void post_receive_forward(int chunk, int i) override { post({true, stage(chunk), i}); }
  void wait_receive_forward(int chunk, int i) override { wait({true, stage(chunk), i}); }
  void send_forward(int chunk, int i) override {
    mail_.put({true, stage(chunk) + 1, i}, output_.at({true, stage(chunk), i}));
  }
  void post_receive_backward(int chunk, int i) override { post({false, stage(chunk), i}); }
  void wait_receive_backward(int chunk, int i) override { wait({false, stage(chunk), i}); }
  void send_backward(int chunk, int i) override {
    mail_.put({false, stage(chunk) - 1, i}, output_.at({false, stage(chunk), i}));
  }
  void mark(ClockReading& slot) override { slot = {++now_, now_}; }

  std::map<int, int64_t> first_gradients;        // of stage 0, by micro-batch
  std::map<int, std::vector<int>> weight_order;  // micro-batches by chunk

 private:
  using Key = Mailboxes::Key;

  int stage(int chunk) const { return schedule_.placement[rank_][chunk]; }

  void post(Key key) { EXPECT_TRUE(posted_.insert(key).second); }
  void wait(Key key) {
    EXPECT_EQ(posted_.erase(key), 1u) << "waits for a message that it never posted";
    input_[key] = mail_.take(key);
  }

  int64_t take_input(bool is_forward, int s, int i) {
    const auto found = input_.find({is_forward, s, i});
    if (found == input_.end()) throw Error("input is missing");
    const int64_t value = found->second;
    input_.erase(found);
    return value;
  }

  void hand_over(bool is_forward, int s, int i, int64_t value, int next) {
    output_[{is_forward, s, i}] = value;
    const bool inside =
        next >= 0 && next < schedule_.total_stages() && schedule_.rank_of_stage(next) == rank_;
    if (inside) input_[{is_forward, next, i}] = value;
  }

  const Schedule& schedule_;
  int rank_;
  Mailboxes& mail_;
  std::set<Key> posted_;
  std::map<Key, int64_t> input_, output_;
  int64_t now_ = 0;
};

int64_t expected_gradient(int stages, int i) {
  int64_t value = i;
  for (int s = 0; s < stages; ++s) value = 3 * value + s + i;
  for (int s = stages - 1; s >= 0; --s) value = 5 * value + s + i;
  return value;
}

// Runs the schedule with one thread for each rank, and checks trace and result.
void run_and_check(const Schedule& schedule) {
  const auto lists = lower(schedule);
  Mailboxes mail;
  std::vector<FakeRunner> runners;
  for (int rank = 0; rank < schedule.stages; ++rank) runners.emplace_back(schedule, rank, mail);
  std::vector<ExecutionTrace> traces(schedule.stages);
  std::vector<std::string> errors(schedule.stages);
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < schedule.stages; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          execute(lists[rank], runners[rank], traces[rank]);
        } catch (const Error& error) {
          errors[rank] = error.what();
        }
      });
    }
  }
  for (int rank = 0; rank < schedule.stages; ++rank) {
    EXPECT_EQ(errors[rank], "");
    EXPECT_EQ(compute_actions(traces[rank]), schedule.ranks[rank]);
    ASSERT_EQ(traces[rank].events.size(), lists[rank].size());
    int64_t now = 0;
    for (size_t i = 0; i < lists[rank].size(); ++i) {
      EXPECT_EQ(traces[rank].events[i].action, lists[rank][i]);
      EXPECT_EQ(traces[rank].events[i].begin.wall_ns, ++now);
      EXPECT_EQ(traces[rank].events[i].end.wall_ns, ++now);
    }
    for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
      EXPECT_EQ(std::ssize(runners[rank].weight_order[chunk]), schedule.microbatches);
    }
  }
  EXPECT_TRUE(mail.empty());
  for (int i = 0; i < schedule.microbatches; ++i) {
    EXPECT_EQ(runners[0].first_gradients[i], expected_gradient(schedule.total_stages(), i));
  }
}

TEST(Execute, RanksRunTheListsOfEveryKindAndComputeThePipeline) {
  for (const ScheduleRequest& request : {ScheduleRequest{"naive", 3, 4, 0, 0},
                                         {"gpipe", 4, 8, 0, 0},
                                         {"gpipe", 4, 2, 0, 0},
                                         {"1f1b", 4, 8, 0, 0},
                                         {"1f1b", 4, 1, 0, 0},
                                         {"1f1b", 1, 3, 0, 0},
                                         {"interleaved_1f1b", 4, 8, 2, 0},
                                         {"interleaved_1f1b", 2, 6, 3, 0},
                                         {"interleaved_1f1b", 3, 7, 2, 4},
                                         {"interleaved_1f1b", 4, 2, 2, 0},
                                         {"interleaved_1f1b", 1, 2, 2, 0},
                                         {"looped_bfs", 3, 5, 2, 0},
                                         {"zb_h1", 4, 9, 0, 0},
                                         {"zb_h2", 3, 7, 0, 0},
                                         {"interleaved_zero_bubble", 3, 6, 2, 0},
                                         {"zbv", 4, 9, 0, 0},
                                         {"zbv", 3, 2, 0, 0},
                                         {"dualpipev", 4, 9, 0, 0}}) {
    SCOPED_TRACE(request.kind);
    run_and_check(make_schedule(request));
  }
}

TEST(Execute, SplitBackwardsAndConsecutiveStagesOnOneRankRunToo) {
  // A V schedule of 2 ranks that leaves weight gradients to the end. Stages 1 and 2 are both on
  // rank 1.
  Schedule v{"own", 2, 2, 2, {{0, 3}, {1, 2}}, std::vector<std::vector<Action>>(2)};
  for (int rank = 0; rank < 2; ++rank) {
    const int first = v.placement[rank][0], second = v.placement[rank][1];
    for (int i = 0; i < 2; ++i) {
      v.ranks[rank].push_back({Kind::forward, first, i});
      v.ranks[rank].push_back({Kind::forward, second, i});
      v.ranks[rank].push_back({Kind::backward_input, second, i});
      v.ranks[rank].push_back({Kind::backward_input, first, i});
    }
    for (int stage : {first, second}) {
      for (int i = 0; i < 2; ++i) v.ranks[rank].push_back({Kind::backward_weight, stage, i});
    }
  }
  run_and_check(v);
}

TEST(Execute, AFailureLeavesTheTraceUpToTheActionThatFailed) {
  const Schedule schedule = interleaved_one_f_one_b(1, 1, 2);
  auto list = lower(schedule)[0];  // 0F0 1F0 1B0 0B0
  list.erase(list.begin() + 1, list.begin() + 3);
  Mailboxes mail;
  FakeRunner runner(schedule, 0, mail);
  ExecutionTrace trace;
  EXPECT_THROW(execute(list, runner, trace), Error);
  ASSERT_EQ(trace.events.size(), 2u);
  EXPECT_EQ(to_string(trace.events[1].action), "0B0");
}

}  // namespace
}  // namespace trident
