-- The first ten failures of a group after changes, in order. A change is a failure, {"id", "error"}, or {"id"}: a retry
-- brought this member back.
create or replace function stepwell.merge_failures(_failures jsonb, _changes jsonb[]) returns jsonb
language sql immutable
as $$
  with change as (
    select e.value, row_number() over (order by a.n, e.n) as n
    from unnest(array_prepend(_failures, _changes)) with ordinality as a (value, n)
    cross join lateral jsonb_array_elements(a.value) with ordinality as e (value, n)
  )
  select jsonb_agg(k.value order by k.n)
  from (
    select c.value, c.n
    from change c
    where c.value ? 'error' and not exists (
      select from change b where b.n > c.n and not b.value ? 'error' and b.value ->> 'id' = c.value ->> 'id'
    )
    order by c.n
    limit 10
  ) k
$$;
