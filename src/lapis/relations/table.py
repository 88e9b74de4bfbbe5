"""A = table[h][D], D = sum_c |q - k|: any affinity of the l1 distance of codes, stored entry by entry."""

from lapis.relations.rule import Rule


class TableRule(Rule):
    """The rule of a relation that you register as a `lapis.nn.TableRelation`."""

    equation = "W_ij = rowscale f_h(D_ij), D_ij = sum_c |q_ic - k_jc|, f_h stored value by value"
    stored = "table"
    needs_codes = True


class PackedTableRule(TableRule):
    """The same in a packed file, which no longer says what the table was trained as."""

    trained = False
