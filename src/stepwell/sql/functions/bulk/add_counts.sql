-- Add counts by name: {"ready": 2} and {"ready": 3, "running": 1} are {"ready": 5, "running": 1}. Those of 0 are left
-- out.
create or replace function stepwell.add_counts(_counts jsonb, _more jsonb) returns jsonb
language plpgsql immutable
as $$
begin
  return (
    select coalesce(jsonb_object_agg(s.key, s.n), '{}')
    from (
      select e.key, sum(e.value::bigint) as n
      from (
        select c.key, c.value from jsonb_each_text(_counts) c
        union all
        select m.key, m.value from jsonb_each_text(_more) m
      ) e
      group by e.key
    ) s
    where s.n > 0
  );
end
$$;
