"""The cheapest tree by integer program, to compare the optimiser with. Never part of the product.

x[i, j, h] = 1: the link i -> j is used and j is at depth h. Every cluster is entered once; j may feed k
at depth h + 1 only if it is itself at depth h (not fed by k); with a fan-out limit F a cluster at depth
h feeds at most F. Needs highspy (HiGHS) from PyPI.
"""

import time


def solve(price, root, max_depth, max_fanout, seconds):
    """price[i][j] in USD per GB, None where there is no link. Returns (cost, proven bound, seconds)."""
    import highspy
    import numpy as np

    n = len(price)
    column = {}
    cost = []

    def add(i, j, h):
        column[i, j, h] = len(cost)
        cost.append(price[i][j])

    for j in range(n):
        if j != root and price[root][j] is not None:
            add(root, j, 1)
    for h in range(2, max_depth + 1):
        for i in range(n):
            for j in range(n):
                if i == j or root in (i, j) or price[i][j] is None:
                    continue
                # Without a fan-out limit nobody takes a link that is no cheaper than the source's.
                if not max_fanout and price[root][j] is not None and price[i][j] >= price[root][j] - 1e-12:
                    continue
                add(i, j, h)
    into, out = {}, {}
    for (i, j, h), v in column.items():
        into.setdefault((j, h), []).append((i, v))
        out.setdefault((i, h), []).append(v)
    rows = []  # (low, high, columns, values)
    infinity = 1e30
    for j in range(n):
        if j != root:
            entries = [v for h in range(1, max_depth + 1) for _, v in into.get((j, h), [])]
            rows.append((1, 1, entries, [1] * len(entries)))
    for (i, j, h), v in column.items():
        if h > 1:
            fed = [u for k, u in into.get((i, h - 1), []) if k != j]
            rows.append((-infinity, 0, [v] + fed, [1] + [-1] * len(fed)))
    if max_fanout:
        for i in range(n):
            for h in range(1, max_depth + 1):
                children = out.get((i, h), [])
                if not children:
                    continue
                if i == root:
                    rows.append((-infinity, max_fanout, children, [1] * len(children)))
                else:
                    fed = [u for _, u in into.get((i, h - 1), [])]
                    rows.append((-infinity, 0, children + fed, [1] * len(children) + [-max_fanout] * len(fed)))

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(rows)
    model.col_cost_ = np.array(cost, dtype=float)
    model.col_lower_, model.col_upper_ = np.zeros(len(cost)), np.ones(len(cost))
    model.row_lower_ = np.array([row[0] for row in rows], dtype=float)
    model.row_upper_ = np.array([row[1] for row in rows], dtype=float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0] + [len(row[2]) for row in rows])
    model.a_matrix_.index_ = np.concatenate([row[2] for row in rows])
    model.a_matrix_.value_ = np.concatenate([row[3] for row in rows]).astype(float)
    model.integrality_ = [highspy.HighsVarType.kInteger] * len(cost)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", float(seconds))
    solver.setOptionValue("mip_rel_gap", 1e-6)
    solver.passModel(model)
    begin = time.monotonic()
    solver.run()
    info = solver.getInfo()
    return info.objective_function_value, info.mip_dual_bound, time.monotonic() - begin
