-- The children of a job, in the order in which it spawned them: at most _limit, after the first _offset.
create or replace function stepwell.dashboard_children(_id uuid, _offset integer default 0, _limit integer default 50)
returns json
language plpgsql stable security definer
as $$
declare
  _from integer := greatest(coalesce(_offset, 0), 0);
  _most integer := least(greatest(coalesce(_limit, 50), 1), 500);
begin
  return coalesce(
    (
      select json_agg(
        json_build_object(
          'key', s.key, 'id', s.child_id, 'state', c.state, 'task', c.task, 'enqueued_at', c.enqueued_at,
          'claimed_at', c.claimed_at, 'finished_at', c.finished_at, 'error', left(c.error, 300),
          -- As its own page would list them: by its steps, which also have children that have ended. Of a live child
          -- with very many steps, the first are looked at.
          'has_children', exists (select from stepwell.job j where j.parent_id = s.child_id) or exists (
            select from (
              select t.child_id from stepwell.step t where t.job_id = s.child_id limit 10000
            ) t
            where t.child_id is not null
          ) or (
            c.finished_at is not null
            and exists (
              select from stepwell.history h
              cross join lateral json_array_elements(h.steps) as e (step)
              where h.id = s.child_id and h.expires_at > stepwell.now() and e.step::text like '%"child_id" : "%'
                and (e.step -> 8) ->> 'child_id' is not null
            )
          )
        )
        order by s.n, s.key
      )
      from (
        select s.n, s.key, s.child_id
        from (
          select s.n, s.key, s.child_id from stepwell.step s where s.job_id = _id and s.child_id is not null
          union all
          select (e.step ->> 1)::integer, e.step ->> 0, ((e.step -> 8) ->> 'child_id')::uuid
          from stepwell.history h
          cross join lateral json_array_elements(h.steps) as e (step)
          where h.id = _id and h.expires_at > stepwell.now()
            -- As stepwell.folded_steps writes it. To decode each of 20,000 steps takes several times as long.
            and e.step::text like '%"child_id" : "%' and (e.step -> 8) ->> 'child_id' is not null
        ) s
        order by s.n, s.key
        offset _from
        limit _most
      ) s
      left join lateral (
        select j.state, j.task, j.enqueued_at, j.claimed_at, j.finished_at, j.error
        from stepwell.jobs j where j.id = s.child_id
      ) c on true
    ),
    '[]'
  );
end
$$;
