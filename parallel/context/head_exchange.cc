#include "parallel/context/head_exchange.h"

#include <vector>

#include "kernels/elementwise.h"
#include "kernels/heads.h"

namespace trident {

HeadExchange::HeadExchange(Context& context, const ProcessGroup& group, int rank, int first,
                           const AttentionArgs& args, const SequencePieces& pieces,
                           const SequencePieces& joined)
    : context_(context),
      group_(group),
      rank_(rank),
      ranks_(pieces.ranks() / joined.ranks()),
      first_(first),
      args_(args),
      pieces_(pieces),
      held_(joined.of(first / ranks_)),
      shape_(args.shape) {
  shape_.heads /= ranks_;
  shape_.groups /= ranks_;
  shape_.sequence = held_[0].count + held_[1].count;
}

Tensor HeadExchange::make(std::int64_t rows, std::int64_t columns) const {
  return context_.empty({rows, columns}, args_.out.dtype(), Category::workspace);
}

std::int64_t HeadExchange::columns_of(std::initializer_list<Heads> operands) const {
  std::int64_t columns = 0;
  for (const Heads& one : operands) columns += one.heads / ranks_ * one.dim;
  return columns;
}

template <class Body>
void HeadExchange::each_run(const Body& body) const {
  std::int64_t row = 0;
  for (int from = 0; from < ranks_; ++from) {
    const auto pieces = pieces_.of(first_ + from);
    for (std::int64_t sample = 0; sample < shape_.batch; ++sample) {
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const SequencePiece& piece = pieces[i];
        if (piece.count > 0) {
          body(row, sample * shape_.sequence + held_[i].local + piece.begin - held_[i].begin,
               piece.count);
        }
        row += piece.count;
      }
    }
  }
}

std::vector<std::int64_t> HeadExchange::counts(std::int64_t columns, bool back) const {
  std::vector<std::int64_t> all;
  for (int from = 0; from < ranks_; ++from) {
    for (int to = 0; to < ranks_; ++to) {
      all.push_back(shape_.batch * pieces_.count(first_ + (back ? to : from)) * columns);
    }
  }
  return all;
}

Tensor HeadExchange::exchange(std::initializer_list<Heads> operands) const {
  const std::int64_t columns = columns_of(operands);
  const std::int64_t rows = shape_.batch * pieces_.count(first_ + rank_),
                     all = shape_.batch * shape_.sequence;
  const Tensor sent = make(ranks_ * rows, columns);
  for (int to = 0; to < ranks_; ++to) {
    std::int64_t column = 0;
    for (const Heads& one : operands) {
      const std::int64_t own = one.heads / ranks_;
      copy_heads(context_, {own,
                            one.dim,
                            {one.x.rows, one.x.begin + to * own * one.dim, one.dim},
                            {sent.rows(to * rows, rows), column, one.dim}});
      column += own * one.dim;
    }
  }
  const Tensor received = make(all, columns), result = make(all, columns);
  group_.all_to_all_v(context_, sent.view({sent.numel()}), received.view({received.numel()}),
                      counts(columns, false));
  each_run([&](std::int64_t row, std::int64_t place, std::int64_t count) {
    copy(context_, received.rows(row, count), result.rows(place, count));
  });
  return result;
}

void HeadExchange::give_back(const Tensor& own, std::initializer_list<Heads> to) const {
  const std::int64_t columns = columns_of(to);
  const std::int64_t rows = shape_.batch * pieces_.count(first_ + rank_);
  const Tensor sent = make(own.dim(0), columns), received = make(ranks_ * rows, columns);
  each_run([&](std::int64_t row, std::int64_t place, std::int64_t count) {
    copy(context_, own.rows(place, count), sent.rows(row, count));
  });
  group_.all_to_all_v(context_, sent.view({sent.numel()}), received.view({received.numel()}),
                      counts(columns, true));
  for (int from = 0; from < ranks_; ++from) {
    std::int64_t column = 0;
    for (const Heads& one : to) {
      const std::int64_t heads = one.heads / ranks_;
      copy_heads(context_, {heads,
                            one.dim,
                            {received.rows(from * rows, rows), column, one.dim},
                            {one.x.rows, one.x.begin + from * heads * one.dim, one.dim}});
      column += heads * one.dim;
    }
  }
}

AttentionArgs HeadExchange::complete(const Tensor& qkv, const Tensor& out) const {
  AttentionArgs all = args_;
  all.shape = shape_;
  all.in = split_qkv(shape_, qkv);
  all.out = out;
  if (args_.sinks) all.sinks = args_.sinks.rows(rank_ * shape_.heads, shape_.heads);
  all.head_offset += rank_ * shape_.heads;
  all.dropout_positions = pieces_.positions();
  return all;
}

void HeadExchange::forward(const std::function<void(const AttentionArgs&)>& attend) const {
  const AttentionShape& all = args_.shape;
  const std::int64_t d = all.head_dim, e = all.value_dim();
  const Tensor qkv = exchange({{args_.in.query, all.heads, d},
                               {args_.in.key, all.groups, d},
                               {args_.in.value, all.groups, e}});
  const Tensor out = make(qkv.dim(0), shape_.out_row());
  attend(complete(qkv, out));
  give_back(out, {{{args_.out, 0}, all.heads, e}});
}

void HeadExchange::backward(const AttentionBackwardArgs& args,
                            const std::function<void(const AttentionBackwardArgs&)>& attend) const {
  const AttentionShape& all = args_.shape;
  const std::int64_t d = all.head_dim, e = all.value_dim();
  const Tensor qkv = exchange({{args_.in.query, all.heads, d},
                               {args_.in.key, all.groups, d},
                               {args_.in.value, all.groups, e}});
  const Tensor out = exchange({{{args_.out, 0}, all.heads, e}});
  const Tensor grad_out = exchange({{{args.grad_out, 0}, all.heads, e}});
  const Tensor grad = make(qkv.dim(0), qkv.dim(1));
  Tensor grad_sinks = args.grad_sinks;
  if (args_.sinks) grad_sinks = grad_sinks.rows(rank_ * shape_.heads, shape_.heads);
  attend({.forward = complete(qkv, out),
          .grad_out = grad_out,
          .grad = split_qkv(shape_, grad),
          .grad_sinks = grad_sinks});
  give_back(grad, {{args.grad.query, all.heads, d},
                   {args.grad.key, all.groups, d},
                   {args.grad.value, all.groups, e}});
}

}  // namespace trident
