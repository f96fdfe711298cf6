"""The cheapest tree within all limits by integer program, to hold the optimiser against. Never part of
the product.

x[i, j, h] = 1: the link i -> j is used and j is at depth h. A destination is entered once, any other
cluster at most once; j may feed k at depth h + 1 only if it is itself at depth h (not fed by k); with a
fan-out limit F a cluster at depth h feeds at most F. Under a delay limit t[j] is the arrival at j, and
t[j] >= t[i] + delay[i][j] where the link is used. A link out of a sick cluster, or a sick link, costs
PENALTY more: few of them first, then the price. Needs highspy (HiGHS) from PyPI.
"""

PENALTY = 10_000_000_000  # 1e-9 USD per GB; above any sum of prices of the families


def everybody(price, root, max_depth, max_fanout):
    """The instance of prices in USD per GB (None where there is no link): to every cluster from `root`."""
    order = [root] + [i for i in range(len(price)) if i != root]
    nanos = [[None if price[i][j] is None else round(price[i][j] * 1e9) for j in order] for i in order]
    return {"price": nanos, "delay": [[0] * len(order) for _ in order], "max_depth": max_depth, "max_fanout": max_fanout,
            "max_delay_us": 0, "destinations": list(range(1, len(order))), "sick": [], "sick_links": []}


def weights(instance):
    """weight[i][j] in 1e-9 USD per GB, the penalties included; None where there is no link."""
    n = len(instance["price"])
    weight = [row[:] for row in instance["price"]]
    sick_links = {tuple(link) for link in instance["sick_links"]}
    for i in range(n):
        for j in range(n):
            if weight[i][j] is not None:
                weight[i][j] += PENALTY * ((i in instance["sick"] and i != 0) + ((i, j) in sick_links))
    return weight


def check(instance, edges):
    """Weight of a tree from the tables alone; ValueError names what is wrong with it."""
    weight, total = weights(instance), 0
    depth, arrival, children = {0: 0}, {0: 0}, {}
    for i, j in edges:
        if i not in depth or j in depth:
            raise ValueError(f"{i} -> {j}: no tree")
        if weight[i][j] is None:
            raise ValueError(f"{i} -> {j}: no such link")
        depth[j], arrival[j] = depth[i] + 1, arrival[i] + instance["delay"][i][j]
        children[i] = children.get(i, 0) + 1
        total += weight[i][j]
    if max(depth.values()) > instance["max_depth"]:
        raise ValueError("too deep")
    if instance["max_fanout"] and max(children.values(), default=0) > instance["max_fanout"]:
        raise ValueError("feeds too many")
    if instance["max_delay_us"] and max(arrival.values()) > instance["max_delay_us"]:
        raise ValueError("too late")
    missing = set(instance["destinations"]) - set(depth)
    if missing:
        raise ValueError(f"leaves out {sorted(missing)}")
    return total


def columns(instance):
    """The links that a path from cluster 0 within depth and delay can use: [(i, j, h)], earliest[h][i]."""
    n, limit = len(instance["price"]), instance["max_delay_us"] or float("inf")
    depth = min(instance["max_depth"], n - 1)
    earliest = [{0: 0}]
    usable = []
    for h in range(1, depth + 1):
        now = {}
        for i, at in earliest[-1].items():
            for j in range(1, n):
                if i == j or instance["price"][i][j] is None:
                    continue
                then = at + instance["delay"][i][j]
                if then <= limit:
                    usable.append((i, j, h))
                    now[j] = min(now.get(j, then), then)
        earliest.append(now)
    return usable, earliest


def solve(instance, seconds, start=None):
    """(status, weight, bound, edges): status is optimal, infeasible or open. `start`: edges of a tree."""
    import highspy
    import numpy as np

    weight = weights(instance)
    n, fanout, limit = len(weight), instance["max_fanout"], instance["max_delay_us"]
    required = set(instance["destinations"])
    usable, earliest = columns(instance)
    scale = 1e-7
    # Without limits but depth nobody takes a link no cheaper than the source's, and the source is free.
    if not fanout and not limit:
        usable = [(i, j, h) for i, j, h in usable
                  if i == 0 or weight[0][j] is None or weight[i][j] < weight[0][j]]
    column = {key: v for v, key in enumerate(usable)}
    cost = [weight[i][j] * scale for i, j, _ in usable]
    into, out = {}, {}
    for (i, j, h), v in column.items():
        into.setdefault((j, h), []).append((i, v))
        out.setdefault((i, h), []).append(v)
    depths = range(1, len(earliest))
    rows, infinity = [], 1e30
    for j in range(1, n):
        entries = [v for h in depths for _, v in into.get((j, h), [])]
        if not entries:
            if j in required:
                return "infeasible", None, None, None
            continue
        rows.append((1 if j in required else 0, 1, entries, [1] * len(entries)))
    for (i, j, h), v in column.items():
        if h > 1:
            fed = [u for k, u in into.get((i, h - 1), []) if k != j]
            rows.append((-infinity, 0, [v] + fed, [1] + [-1] * len(fed)))
    if fanout:
        for i in range(n):
            for h in depths:
                children = out.get((i, h), [])
                if i == 0 and children:
                    rows.append((-infinity, fanout, children, [1] * len(children)))
                elif children:
                    fed = [u for _, u in into.get((i, h - 1), [])]
                    rows.append((-infinity, 0, children + fed, [1] * len(children) + [-fanout] * len(fed)))
    low, high = [0.0] * len(cost), [1.0] * len(cost)
    if limit:
        first = [min((e[j] for e in earliest if j in e), default=0) for j in range(n)]
        time = {j: len(cost) + j for j in range(n)}
        low += [first[j] * 1e-3 for j in range(n)]
        high += [0.0 if j == 0 else limit * 1e-3 for j in range(n)]
        pairs = {}
        for (i, j, h), v in column.items():
            pairs.setdefault((i, j), []).append(v)
        for (i, j), entries in pairs.items():
            # t[j] - t[i] - (delay + slack) * used >= -slack, slack = the most t[i] can be above t[j]
            slack = ((0 if i == 0 else limit) - first[j]) * 1e-3
            delay = instance["delay"][i][j] * 1e-3
            rows.append((-slack, infinity, [time[j], time[i]] + entries, [1, -1] + [-(delay + slack)] * len(entries)))
    count = len(low)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = count, len(rows)
    model.col_cost_ = np.array(cost + [0.0] * (count - len(cost)))
    model.col_lower_, model.col_upper_ = np.array(low), np.array(high)
    model.row_lower_ = np.array([row[0] for row in rows], dtype=float)
    model.row_upper_ = np.array([row[1] for row in rows], dtype=float)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = np.cumsum([0] + [len(row[2]) for row in rows])
    model.a_matrix_.index_ = np.concatenate([row[2] for row in rows])
    model.a_matrix_.value_ = np.concatenate([row[3] for row in rows]).astype(float)
    integer, real = highspy.HighsVarType.kInteger, highspy.HighsVarType.kContinuous
    model.integrality_ = [integer] * len(cost) + [real] * (count - len(cost))
    solver = highspy.Highs()
    for option, value in [("output_flag", False), ("threads", 1), ("time_limit", float(seconds)),
                          ("mip_rel_gap", 0.0), ("mip_abs_gap", 1e-5)]:
        solver.setOptionValue(option, value)
    solver.passModel(model)
    if start:
        point, depth, arrival = [0.0] * count, {0: 0}, {0: 0}
        for i, j in start:
            depth[j], arrival[j] = depth[i] + 1, arrival[i] + instance["delay"][i][j]
            if (i, j, depth[j]) in column:
                point[column[i, j, depth[j]]] = 1.0
        for j in range(n if limit else 0):
            point[time[j]] = arrival.get(j, first[j]) * 1e-3
        solution = highspy.HighsSolution()
        solution.col_value = point
        solver.setSolution(solution)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return "infeasible", None, None, None
    info = solver.getInfo()
    bound = info.mip_dual_bound / scale
    edges = None
    if info.primal_solution_status == 2:
        values = solver.getSolution().col_value
        chosen = sorted((h, i, j) for (i, j, h), v in column.items() if values[v] > 0.5)
        edges = [(i, j) for _, i, j in chosen]
    if edges is None:
        return "open", None, bound, None
    total = check(instance, edges)
    proven = status == highspy.HighsModelStatus.kOptimal
    return ("optimal" if proven else "open"), total, (total if proven else bound), edges
