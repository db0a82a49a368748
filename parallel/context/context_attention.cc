#include "parallel/context/context_attention.h"

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/heads.h"
#include "parallel/context/head_exchange.h"

namespace trident {
namespace {

// Keys and values of all positions of a rank side by side: (rows, G·(D + E)).
struct Packed {
  const AttentionShape& shape;

  std::int64_t columns() const { return shape.groups * (shape.head_dim + shape.value_dim()); }
  std::int64_t value_begin() const { return shape.groups * shape.head_dim; }
  HeadColumns key(const Tensor& rows) const { return {rows, 0}; }
  HeadColumns value(const Tensor& rows) const { return {rows, value_begin()}; }

  void pack(Context& context, const HeadColumns& key, const HeadColumns& value,
            const Tensor& to) const {
    const std::int64_t d = shape.head_dim, e = shape.value_dim();
    copy_heads(context, {shape.groups, d, {key.rows, key.begin, d}, {to, 0, d}});
    copy_heads(context, {shape.groups, e, {value.rows, value.begin, e}, {to, value_begin(), e}});
  }
  void unpack(Context& context, const Tensor& from, const HeadColumns& key,
              const HeadColumns& value) const {
    const std::int64_t d = shape.head_dim, e = shape.value_dim();
    copy_heads(context, {shape.groups, d, {from, 0, d}, {key.rows, key.begin, d}});
    copy_heads(context, {shape.groups, e, {from, value_begin(), e}, {value.rows, value.begin, e}});
  }
};

// A call of attention around the ring of a group's ranks, on one of them.
class RingCall {
 public:
  RingCall(Context& context, const ProcessGroup& group, int rank, bool gathers,
           const AttentionArgs& args, const SequencePieces& pieces)
      : context_(context),
        group_(group),
        rank_(rank),
        ranks_(pieces.ranks()),
        gathers_(gathers),
        args_(args),
        pieces_(pieces),
        packed_{args.shape} {}

  void forward() const;
  void backward(const AttentionBackwardArgs&) const;

 private:
  // One piece of this rank's queries with one of a block of keys, in one sample.
  struct Part {
    std::int64_t sample;
    SequencePiece queries, keys;
    bool is_first;  // of these queries
    bool is_own;    // the two pieces are the same
  };

  DType dtype() const { return args_.out.dtype(); }
  Tensor make(std::int64_t rows, std::int64_t columns, DType dtype) const {
    return context_.empty({rows, columns}, dtype, Category::workspace);
  }
  std::int64_t samples() const { return args_.shape.batch; }
  std::int64_t rows_of(int rank) const { return samples() * pieces_.count(rank); }
  int owner(int step) const { return (rank_ - step + ranks_) % ranks_; }
  int next() const { return (rank_ + 1) % ranks_; }
  int previous() const { return (rank_ + ranks_ - 1) % ranks_; }
  Tensor of_queries(const Tensor& rows, const Part& part) const {
    return rows.rows(part.sample * pieces_.count(rank_) + part.queries.local, part.queries.count);
  }
  Tensor of_keys(const Tensor& rows, const Part& part, int owner) const {
    return rows.rows(part.sample * pieces_.count(owner) + part.keys.local, part.keys.count);
  }
  // A piece's part (1, A, count) of the log-sum-exp, which holds sample after sample, in each its
  // head and its tail.
  Tensor log_sum_exp(const Part& part) const {
    const std::int64_t heads = args_.shape.heads;
    const std::int64_t begin = heads * (part.sample * pieces_.count(rank_) + part.queries.local);
    return args_.log_sum_exp.flat(begin, heads * part.queries.count)
        .view({1, heads, part.queries.count});
  }

  // Calls body(step, keys and values of the rank at this ring distance) in the order of distances.
  void each_block(const std::function<void(int step, const Tensor& block)>& body) const;
  void pass_blocks(const std::function<void(int step, const Tensor& block)>& body) const;
  // Calls body(part) for the parts of a block that this rank's queries see.
  void each_part(int step, const std::function<void(const Part&)>& body) const;
  AttentionArgs args_of(const Part&, const Tensor& block, int owner) const;

  // Adds up the gradients of keys and values of each rank, whose own sum it returns.
  Tensor sum_of_blocks(const std::function<Tensor(int step, const Tensor& block)>& part) const;

  Context& context_;
  const ProcessGroup& group_;
  int rank_, ranks_;
  bool gathers_;
  const AttentionArgs& args_;
  const SequencePieces& pieces_;
  Packed packed_;
};

void RingCall::pass_blocks(const std::function<void(int, const Tensor&)>& body) const {
  Tensor held = make(rows_of(rank_), packed_.columns(), dtype());
  packed_.pack(context_, args_.in.key, args_.in.value, held);
  for (int step = 0;; ++step) {
    if (step + 1 == ranks_) return body(step, held);
    const Tensor coming = make(rows_of(owner(step + 1)), packed_.columns(), dtype());
    const Work sent = group_.send(context_, held, next(), Async::yes);
    const Work received = group_.receive(context_, coming, previous(), Async::yes);
    body(step, held);
    sent.wait(context_);
    received.wait(context_);
    held = coming;
  }
}

void RingCall::each_block(const std::function<void(int, const Tensor&)>& body) const {
  if (!gathers_) return pass_blocks(body);
  const std::int64_t most = samples() * pieces_.most();
  const Tensor all = make(ranks_ * most, packed_.columns(), dtype());
  const Tensor own = all.rows(rank_ * most, most);
  packed_.pack(context_, args_.in.key, args_.in.value, own.rows(0, rows_of(rank_)));
  if (rows_of(rank_) < most) {
    fill(context_, own.rows(rows_of(rank_), most - rows_of(rank_)), 0);
  }
  group_.all_gather(context_, own, all);
  for (int step = 0; step < ranks_; ++step) {
    body(step, all.rows(owner(step) * most, rows_of(owner(step))));
  }
}

void RingCall::each_part(int step, const std::function<void(const Part&)>& body) const {
  const auto own = pieces_.of(rank_), others = pieces_.of(owner(step));
  const std::int64_t window = args_.mask.window;
  for (std::int64_t sample = 0; sample < samples(); ++sample) {
    for (const SequencePiece& queries : own) {
      bool is_first = step == 0;
      for (const SequencePiece& keys : others) {
        if (queries.count == 0 || keys.count == 0 || keys.begin >= queries.end()) continue;
        if (window > 0 && keys.end() <= queries.begin - window + 1) continue;
        body({sample, queries, keys, is_first, keys.begin == queries.begin});
        is_first = false;
      }
    }
  }
}

AttentionArgs RingCall::args_of(const Part& part, const Tensor& block, int owner) const {
  AttentionArgs of = args_;
  of.shape.batch = 1;
  of.shape.sequence = part.queries.count;
  of.shape.key_positions = part.keys.count;
  const Tensor keys = of_keys(block, part, owner);
  of.in = {{of_queries(args_.in.query.rows, part), args_.in.query.begin},
           packed_.key(keys),
           packed_.value(keys)};
  of.mask.query_begin = part.queries.begin;
  of.mask.key_begin = part.keys.begin;
  if (of.mask.document_begins) {
    of.mask.document_begins =
        args_.mask.document_begins
            .flat(part.sample * pieces_.positions() + part.queries.begin, part.queries.count)
            .view({1, part.queries.count});
  }
  if (!part.is_own) of.sinks = Tensor();
  if (of.dropout.probability > 0) of.dropout.samples = args_.dropout.samples.flat(part.sample, 1);
  of.dropout_positions = pieces_.positions();
  return of;
}

void RingCall::forward() const {
  // Parts are merged in fp32.
  const bool rounds = dtype() != DType::f32;
  const Tensor total = rounds ? make(args_.out.dim(0), args_.out.dim(1), DType::f32) : args_.out;
  each_block([&](int step, const Tensor& block) {
    each_part(step, [&](const Part& part) {
      AttentionArgs of = args_of(part, block, owner(step));
      const Tensor out = of_queries(total, part), log_sums = log_sum_exp(part);
      const bool direct = part.is_first && !rounds;
      of.out = direct ? out : make(out.dim(0), out.dim(1), dtype());
      of.log_sum_exp = part.is_first
                           ? log_sums
                           : context_.empty(log_sums.shape(), DType::f32, Category::workspace);
      attention_forward(context_, of);
      if (direct) return;
      if (part.is_first) return copy(context_, of.out, out);
      merge_attention(context_, {of.shape, of.out, of.log_sum_exp, out, log_sums});
    });
  });
  if (rounds) copy(context_, total, args_.out);
}

// Under p2p the sum of a block's gradients follows the block around the ring; all_gather adds the
// same parts in the same order after an exchange.
Tensor RingCall::sum_of_blocks(const std::function<Tensor(int, const Tensor&)>& part) const {
  if (!gathers_) {
    Tensor sum;
    Work sent, received;
    Tensor held;  // until it is sent
    pass_blocks([&](int step, const Tensor& block) {
      const Tensor own = part(step, block);
      if (step > 0) {
        received.wait(context_);
        sent.wait(context_);
        add(context_, own, sum);
      } else {
        sum = own;
      }
      held = sum;
      const int coming = owner(step + 1 == ranks_ ? 0 : step + 1);
      sum = make(rows_of(coming), packed_.columns(), DType::f32);
      constexpr int channel = 1;
      sent = group_.send(context_, held, next(), Async::yes, channel);
      received = group_.receive(context_, sum, previous(), Async::yes, channel);
    });
    received.wait(context_);
    sent.wait(context_);
    return sum;
  }
  const std::int64_t most = samples() * pieces_.most(), columns = packed_.columns();
  const Tensor parts = make(ranks_ * most, columns, DType::f32);
  each_block([&](int step, const Tensor& block) {
    const Tensor to = parts.rows(owner(step) * most, most);
    const std::int64_t rows = block.dim(0);
    copy(context_, part(step, block), to.rows(0, rows));
    if (rows < most) fill(context_, to.rows(rows, most - rows), 0);
  });
  const Tensor of_ranks = make(ranks_ * most, columns, DType::f32);
  group_.all_to_all(context_, parts, of_ranks);
  const Tensor sum = of_ranks.rows(rank_ * most, rows_of(rank_));
  for (int step = 1; step < ranks_; ++step) {
    add(context_, of_ranks.rows((rank_ + step) % ranks_ * most, rows_of(rank_)), sum);
  }
  return sum;
}

void RingCall::backward(const AttentionBackwardArgs& args) const {
  const AttentionShape& shape = args_.shape;
  const std::int64_t width = shape.heads * shape.head_dim;
  const Tensor queries = make(rows_of(rank_), width, DType::f32);
  fill(context_, queries, 0);
  const Tensor sum = sum_of_blocks([&](int step, const Tensor& block) {
    const Tensor total = make(block.dim(0), packed_.columns(), DType::f32);
    fill(context_, total, 0);
    each_part(step, [&](const Part& part) {
      AttentionBackwardArgs of{.forward = args_of(part, block, owner(step))};
      of.forward.out = of_queries(args_.out, part);
      of.forward.log_sum_exp = log_sum_exp(part);
      of.grad_out = of_queries(args.grad_out, part);
      const Tensor query = make(part.queries.count, width, dtype());
      const Tensor keys = make(part.keys.count, packed_.columns(), dtype());
      of.grad = {{query, 0}, packed_.key(keys), packed_.value(keys)};
      of.grad_sinks = args.grad_sinks;
      attention_backward(context_, of);
      add(context_, query, of_queries(queries, part));
      add(context_, keys, of_keys(total, part, owner(step)));
    });
    return total;
  });
  const auto rounded = [&](const Tensor& x) {
    if (dtype() == DType::f32) return x;
    Tensor to = make(x.dim(0), x.dim(1), dtype());
    copy(context_, x, to);
    return to;
  };
  packed_.unpack(context_, rounded(sum), args.grad.key, args.grad.value);
  const std::int64_t d = shape.head_dim;
  copy_heads(
      context_,
      {shape.heads, d, {rounded(queries), 0, d}, {args.grad.query.rows, args.grad.query.begin, d}});
}

}  // namespace

ContextAttention::ContextAttention(Groups groups, int rank, int size, Exchange exchange,
                                   int neighbours)
    : rank_(rank),
      size_(size),
      neighbours_(exchange == Exchange::a2a       ? size
                  : exchange == Exchange::a2a_p2p ? neighbours
                                                  : 1),
      gathers_(exchange == Exchange::all_gather) {
  const bool both = exchange == Exchange::a2a_p2p;
  heads_ = both ? std::move(groups.heads) : groups.all;
  ring_ = both ? std::move(groups.ring) : std::move(groups.all);
}

Tensor ContextAttention::make_log_sum_exp(Context& context, const AttentionShape& shape,
                                          std::int64_t positions) const {
  AttentionShape of = shape;
  if (neighbours_ > 1) {
    of.heads /= neighbours_;
    of.sequence = joined(positions).count(place());
  }
  return context.empty({of.batch, of.heads, of.sequence}, DType::f32, Category::activation);
}

void ContextAttention::forward(Context& context, const AttentionArgs& args,
                               std::int64_t positions) const {
  const SequencePieces together = joined(positions);
  const auto attend = [&](const AttentionArgs& own) {
    if (together.ranks() == 1) return attention_forward(context, own);
    RingCall(context, ring_, place(), gathers_, own, together).forward();
  };
  if (neighbours_ == 1) return attend(args);
  const int own = rank_ % neighbours_;
  HeadExchange(context, heads_, own, rank_ - own, args, pieces(positions), together)
      .forward(attend);
}

void ContextAttention::backward(Context& context, const AttentionBackwardArgs& args,
                                std::int64_t positions) const {
  const SequencePieces together = joined(positions);
  const auto attend = [&](const AttentionBackwardArgs& own) {
    if (together.ranks() == 1) return attention_backward(context, own);
    RingCall(context, ring_, place(), gathers_, own.forward, together).backward(own);
  };
  if (neighbours_ == 1) return attend(args);
  const int own = rank_ % neighbours_;
  HeadExchange(context, heads_, own, rank_ - own, args.forward, pieces(positions), together)
      .backward(args, attend);
}

}  // namespace trident
